package enforce

import (
	"context"
	"errors"
	"time"
)

// Errors of a Swapper that callers act on, beside ErrGone, ErrForeign and
// ErrUnavailable. An error that wraps ErrCannotSwap is logged once
// and is not a failure.
var (
	// ErrCannotSwap means that this container, as it is now, cannot be swapped; the
	// error's text says why. Nothing was stopped.
	ErrCannotSwap = errors.New("cannot be swapped")
	// ErrNoHostMemory means that the host, or the container's own memory limit, has no
	// room for what is on the GPU. It is an ErrCannotSwap.
	ErrNoHostMemory = errors.New("no host memory for it")
	// ErrNoRoom means that the GPU has no room, reserve included, for what was swapped
	// out. Nothing was changed; the call may be repeated when there is some.
	ErrNoRoom = errors.New("no room on the GPU")
	// ErrBusy means that the container is just being suspended or resumed.
	ErrBusy = errors.New("a swap of it is under way")
	// ErrUndone means that a suspend failed and was undone: the container runs, and nothing is
	// on record.
	ErrUndone = errors.New("undone")
	// ErrStuck means that a swap could be neither finished nor undone now. The container stays
	// on record, its memory image is kept, and Resume may be called again.
	ErrStuck = errors.New("stuck in the middle")
)

// SwapResult says what a swap moved and how long its steps took.
type SwapResult struct {
	// Bytes is the GPU memory of the processes that were moved, contexts included, by GPU UUID. One that
	// ended while it was swapped out is not moved by Resume.
	Bytes map[string]uint64
	// Processes is how many were moved.
	Processes int
	// Of Suspend: until all are locked (they wait for their kernels); until all are
	// checkpointed; until the container is frozen. Of Resume: until the container
	// runs; until all are restored; until all are unlocked.
	LockSeconds, CheckpointSeconds, PauseSeconds  float64
	UnpauseSeconds, RestoreSeconds, UnlockSeconds float64
}

// Seconds is how long the whole swap took.
func (r SwapResult) Seconds() float64 {
	return r.LockSeconds + r.CheckpointSeconds + r.PauseSeconds + r.UnpauseSeconds + r.RestoreSeconds + r.UnlockSeconds
}

// Swapped is a container that is, or may be, off its GPUs.
type Swapped struct {
	ContainerID string `json:"container_id"`
	Container   string `json:"container"`
	Reason      string `json:"reason"`
	// Bytes is the memory that it needs on each GPU, by UUID, to be swapped in.
	Bytes map[string]uint64 `json:"bytes"`
	Since time.Time         `json:"since"`
	// Stage is suspending, suspended, resuming or stuck. Only a suspended one is frozen
	// and has freed its GPUs for certain.
	Stage SwapStage `json:"stage"`
	// Error is why it is stuck.
	Error string `json:"error,omitempty"`
}

// SwapStage says how far a swap has come.
type SwapStage string

// The stages of a swap.
const (
	Suspending SwapStage = "suspending"
	Suspended  SwapStage = "suspended"
	Resuming   SwapStage = "resuming"
	Stuck      SwapStage = "stuck"
)

// Swapper takes whole containers off their GPUs and brings them back.
// Implementations MUST be safe for concurrent use, also for one container:
// there, all but one get ErrBusy.
type Swapper interface {
	// Can reports whether Suspend would be tried now. It changes nothing. The error
	// wraps ErrCannotSwap and says why not, or is ErrGone or ErrUnavailable, or is
	// ErrForeign for a container that anybody has paused: it must run, because a frozen
	// process cannot be locked. One that we paused has to be unpaused first.
	Can(ctx context.Context, containerID string) error
	// Suspend locks all its processes that use CUDA, checkpoints them into host memory
	// and freezes the container. It MUST be on record before anything is stopped. On
	// an error it MUST have undone all (ErrUndone), or have changed nothing, or say
	// ErrStuck. Suspending what is suspended does nothing.
	Suspend(ctx context.Context, containerID, container, reason string) (SwapResult, error)
	// Resume undoes Suspend, or what is left of one: unfreeze, restore, unlock. Before it
	// changes anything it MUST see that the GPUs have room, with a reserve, and ask
	// room, if that is not nil, with what it needs by GPU UUID; an error of room is
	// returned with ErrNoRoom. A container that is not on record is ErrForeign; one
	// that has ended is a success. The record MUST go only when all of it runs, or is
	// gone. It MUST NOT kill anything.
	Resume(ctx context.Context, containerID string, room func(need map[string]uint64) error) (SwapResult, error)
	// Swapped lists what is on record, oldest first.
	Swapped() ([]Swapped, error)
}
