// Package checkpoint swaps whole containers off their GPUs and brings them back, by
// the CUDA driver's checkpoint API (cuCheckpointProcess*, driver 570 or newer).
//
// Suspended is locked → checkpointed into host memory → paused by Docker; resumed is
// unpaused → restored → unlocked. That order is forced: a frozen process can
// neither be locked nor restored, because its own threads do the work.
//
// The driver library is loaded by a process of its own, the helper (Serve; Helper is
// its client), so that a crash or a hang in the library costs one step and not the
// actuator. Nothing kills a process or a helper in the middle of a restore: that can lose the
// process, and has hung hosts (NVIDIA/cuda-checkpoint issue 53).
//
// The package imports the standard library, actuator/enforce, actuator/record, internal/aside
// and internal/cgroup.
// checkpointtest holds the conformance suite; libcuda is the driver library by cgo,
// for the helper alone.
package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// State is the checkpoint state of a process that uses CUDA.
type State string

// The states, as CUprocessState names them.
const (
	Running      State = "running"
	Locked       State = "locked"       // CUDA calls that would reach the GPU block
	Checkpointed State = "checkpointed" // locked, and off the GPU
	Moving       State = "moving"       // a checkpoint or a restore is under way
	Failed       State = "failed"       // cannot be used any more
)

// Errors of a Driver.
var (
	// ErrNoCUDA means that the process does not exist, or does not use CUDA.
	ErrNoCUDA = errors.New("the process does not use CUDA")
	// ErrNotReady means that the process could not be locked in time.
	ErrNotReady = errors.New("its kernels did not end in time")
	// ErrNotSupported means that the driver cannot do this with this process.
	ErrNotSupported = errors.New("the driver does not support it")
	// ErrUnavailable means that no step can be done on this machine: no driver, too old
	// a driver, a build without cgo.
	ErrUnavailable = errors.New("the checkpoint API of CUDA cannot be had")
	// ErrHelper means that the helper died, or did not answer in time. What became of
	// the step is not known; State tells.
	ErrHelper = errors.New("checkpoint helper")
)

// Code is an error of the CUDA driver, a CUresult.
type Code int

// The codes that mean something here.
const (
	InvalidValue   Code = 1
	OutOfMemory    Code = 2
	NotInitialized Code = 3
	IllegalState   Code = 401
	NotReady       Code = 600
	NotPermitted   Code = 800
	NotSupported   Code = 801
	Unknown        Code = 999
)

var codeNames = map[Code]string{
	InvalidValue: "invalid value", OutOfMemory: "out of memory", NotInitialized: "not initialized",
	IllegalState: "illegal state", NotReady: "not ready", NotPermitted: "not permitted",
	NotSupported: "not supported", Unknown: "unknown error",
}

// Error implements error.
func (c Code) Error() string {
	if name, ok := codeNames[c]; ok {
		return fmt.Sprintf("CUDA error %d (%s)", int(c), name)
	}
	return fmt.Sprintf("CUDA error %d", int(c))
}

// Is gives a code the meaning that callers act on.
func (c Code) Is(target error) bool {
	return c == NotReady && target == ErrNotReady || c == NotSupported && target == ErrNotSupported
}

// Driver is the checkpoint API for the processes of this machine, by host PID. Each call
// MUST return soon after ctx ends; the step itself may go on then, and State tells
// what became of it. Implementations MUST be safe for concurrent use, for
// different processes.
type Driver interface {
	// State MUST return ErrNoCUDA for a process that does not use CUDA or is gone. It is
	// not asked about frozen processes.
	State(ctx context.Context, pid int) (State, error)
	// Lock lets the running kernels end and blocks further ones: running → locked. It
	// MUST return ErrNotReady when they did not end within limit, and leave the
	// process running then.
	Lock(ctx context.Context, pid int, limit time.Duration) error
	// Checkpoint moves what is on the GPU into the process's host memory: locked →
	// checkpointed.
	Checkpoint(ctx context.Context, pid int) error
	// Restore moves it back: checkpointed → locked. Without room on the GPU it
	// fails, and may leave the process unusable.
	Restore(ctx context.Context, pid int) error
	// Unlock lets it go on: locked → running.
	Unlock(ctx context.Context, pid int) error
}

// GPU is what one GPU holds.
type GPU struct {
	UUID string `json:"uuid"`
	// Total and Used are bytes; Used counts what belongs to no process too.
	Total uint64 `json:"total"`
	Used  uint64 `json:"used"`
	// Processes is what each process holds, its contexts included, by host PID; nil
	// where the driver does not say.
	Processes map[int]uint64 `json:"processes"`
}

// Memory reads the memory of the GPUs of this machine.
type Memory interface {
	GPUs(ctx context.Context) ([]GPU, error)
}
