package task

import "context"

// Ledger returns what is held on each GPU now, by UUID. The error is that of a device
// or a GPU that cannot be read: what is held there must not be taken for nothing.
type Ledger func(ctx context.Context) (map[string]Usage, error)

// Usage is what is in use of one GPU, bytes.
type Usage struct {
	// Used is by whomever: also by processes that are not listed yet, or not any more.
	Used uint64
	// Processes is what each process holds, contexts included, by PID.
	Processes map[int]uint64
}
