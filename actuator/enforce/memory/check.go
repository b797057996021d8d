package memory

import (
	"errors"
	"fmt"
	"os"

	"github.com/laxity/laxity/internal/cudaprobe"
)

// Check says whether this machine can hold GPU memory limits, by setting a guard up
// and taking it down again. nil: allocations beyond a limit are denied, and
// processes are shown their limit; else the error wraps cudaprobe.ErrUnsupported
// and says why, and limits can only be watched.
func Check() error {
	if err := cudaprobe.Check(cudaprobe.Options{}); err != nil {
		return err
	}
	if err := cudaprobe.CheckTrace(); err != nil {
		return err
	}
	name := fmt.Sprintf("laxity-check-memory-%d", os.Getpid())
	g, err := cudaprobe.NewMemoryGuard(cudaprobe.GuardOptions{Pins: name})
	if err != nil {
		return err
	}
	return errors.Join(g.Close(), cudaprobe.RemoveRecord(cudaprobe.PinFolder(name)))
}
