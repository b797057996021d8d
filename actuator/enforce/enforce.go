// Package enforce says what carries out a plan. The adapters for
// container engines are enforce/docker, enforce/containerd and enforce/crio; enforcetest holds the
// conformance suite that every adapter runs, and a fake.
//
// It imports the standard library and actuator/record only.
package enforce

import (
	"context"
	"errors"
	"time"

	"github.com/laxity/laxity/actuator/record"
)

// Errors that callers act on.
var (
	// ErrGone means that the container does not exist or does not run any more. There is
	// nothing to pause and nothing to release.
	ErrGone = errors.New("container is gone")
	// ErrForeign means that the container's pause is not ours. Somebody else paused it, or
	// there is no record that we did.
	ErrForeign = errors.New("not paused by Laxity")
	// ErrUnavailable means that the engine does not answer. The call may be repeated.
	ErrUnavailable = errors.New("container engine unavailable")
)

// Status is what the engine, and where it can be read the kernel, say of a
// container.
type Status struct {
	Running bool // its first process lives; true while paused
	Paused  bool // the engine or the kernel's freezer says so
	// Verified: the kernel's freezer was read and agrees with the engine.
	Verified bool
	// Started is when its first process began; zero where that is not known.
	Started time.Time
	// Labels are the container's.
	Labels map[string]string
}

// Enforcer pauses containers and releases them. Implementations MUST be safe for
// concurrent use; callers do not act on one container twice at a time.
type Enforcer interface {
	// Status MUST read the present state, and return ErrGone for a container
	// that does not exist or does not run.
	Status(ctx context.Context, id string) (Status, error)
	// Pause stops the container. The hold MUST be on record before the container
	// can stop, and MUST NOT be on record after an error unless the container may
	// be stopped. It MUST return ErrForeign, and leave no record, when the
	// container is paused already and there is no record of ours. Pausing what
	// we have paused renews the record and does nothing else.
	Pause(ctx context.Context, h record.Hold) error
	// Unpause continues the container and then removes the record. It
	// MUST return ErrForeign and do nothing when there is no record. A container
	// that is gone, or that somebody else unpaused, is a success: the record is
	// removed. A pause that the engine is only about to carry out MUST NOT find it
	// removed. After any other error the record MUST stay.
	Unpause(ctx context.Context, id string) error
	// Calls returns how often a container was paused or unpaused as a whole so
	// far, repetitions included.
	Calls() uint64
}
