package gate

import (
	"errors"
	"fmt"
	"os"

	"github.com/laxity/laxity/internal/cudaprobe"
)

// Check says whether this machine can gate, by setting a gate up and taking it
// down again. nil: it can; else the error wraps cudaprobe.ErrUnsupported and says
// why, and what would help. A weakness that does not keep it from working is told
// by CheckWeakness.
func Check() error {
	_, err := check()
	return err
}

// CheckWeakness says, where Check is nil, what a gate here cannot do; nil: nothing.
func CheckWeakness() error {
	weakness, err := check()
	return errors.Join(weakness, err)
}

func check() (weakness, err error) {
	if err := cudaprobe.Check(cudaprobe.Options{}); err != nil {
		return nil, err
	}
	name := fmt.Sprintf("laxity-check-%d", os.Getpid())
	g, err := cudaprobe.NewGate(cudaprobe.GateOptions{Pins: name})
	if err != nil {
		return nil, err
	}
	weakness = g.Weakness()
	return weakness, errors.Join(g.Close(), cudaprobe.RemoveRecord(cudaprobe.PinFolder(name)))
}
