package task

import "context"

// UsageReader returns the memory in use on each GPU now, by UUID. It returns an error if it cannot
// read the device. Where it cannot read one of the GPUs, Usage.Err says so.
type UsageReader func(ctx context.Context) (map[string]Usage, error)

// Usage is the memory in use on one GPU, bytes.
type Usage struct {
	// Err says why this GPU could not be read: do not take it for empty. The rest is valid only when
	// Err is nil.
	Err error
	// Used counts all users, also processes that are not listed yet or not any more.
	Used uint64
	// Processes is the memory that each process holds, contexts included, by PID.
	Processes map[int]uint64
}

// Nothing is left of a GPU's memory or time from here on: a tool that prints whole percents prints 100 %.
const (
	MemoryLeft = 0.005 // share of the memory that is free
	FullUse    = 0.995 // utilisation
)
