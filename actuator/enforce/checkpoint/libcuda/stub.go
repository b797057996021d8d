//go:build !linux || !cgo

package libcuda

import (
	"fmt"

	"github.com/laxity/laxity/actuator/enforce/checkpoint"
)

type functions struct{}

// Open returns an error: this build cannot load libraries.
func Open(string) (*Library, error) {
	return nil, fmt.Errorf("%w: this program was built without cgo", checkpoint.ErrUnavailable)
}

// State does nothing in this build.
func (*Library) State(int) (checkpoint.State, error) { return "", checkpoint.ErrUnavailable }

// Lock does nothing in this build.
func (*Library) Lock(int, uint32) error { return checkpoint.ErrUnavailable }

// Checkpoint does nothing in this build.
func (*Library) Checkpoint(int) error { return checkpoint.ErrUnavailable }

// Restore does nothing in this build.
func (*Library) Restore(int) error { return checkpoint.ErrUnavailable }

// Unlock does nothing in this build.
func (*Library) Unlock(int) error { return checkpoint.ErrUnavailable }
