//go:build !amd64

package cudaprobe

import (
	"errors"
	"os"
)

// atReturn is for amd64 alone.
func (g *MemoryGuard) atReturn(Call, func() bool, func(*attempt, *os.File) error) error {
	return errors.New("the registers of a call are not known on this processor")
}
