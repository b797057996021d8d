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
// and says why, and limits can only be watched. A weakness that does not keep it
// from working is told by CheckWeakness.
func Check() error {
	_, err := check()
	return err
}

// CheckWeakness says, where Check is nil, what a guard here cannot do; nil: nothing.
func CheckWeakness() error {
	weakness, err := check()
	return errors.Join(weakness, err)
}

func check() (weakness, err error) {
	if err := cudaprobe.Check(cudaprobe.Options{}); err != nil {
		return nil, err
	}
	if err := cudaprobe.CheckTrace(); err != nil {
		return nil, err
	}
	name := fmt.Sprintf("laxity-check-memory-%d", os.Getpid())
	g, err := cudaprobe.NewMemoryGuard(cudaprobe.GateOptions{Pins: name})
	if err != nil {
		return nil, err
	}
	weakness = g.Weakness()
	return weakness, errors.Join(g.Close(), cudaprobe.RemoveRecord(cudaprobe.PinFolder(name)))
}
