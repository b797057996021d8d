package task

import "context"

// UsageReader returns the memory in use on each GPU now, by UUID. It returns an error if it cannot
// read the device or one of the GPUs: do not take that GPU for empty.
type UsageReader func(ctx context.Context) (map[string]Usage, error)

// Usage is the memory in use on one GPU, bytes.
type Usage struct {
	// Used counts all users, also processes that are not listed yet or not any more.
	Used uint64
	// Processes is the memory that each process holds, contexts included, by PID.
	Processes map[int]uint64
}
