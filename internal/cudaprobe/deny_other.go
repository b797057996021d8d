//go:build !amd64

package cudaprobe

import "errors"

// ErrCannotDeny means that a held call cannot be made to fail.
var ErrCannotDeny = errors.New("the call cannot be denied")

// Deny is for amd64 alone.
func (g *MemoryGuard) Deny(Call, func() bool) error { return ErrCannotDeny }
