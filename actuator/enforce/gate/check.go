package gate

import (
	"errors"
	"fmt"
	"os"

	"github.com/laxity/laxity/internal/cudaprobe"
)

// Check says whether this machine can gate, by setting a gate up and taking it
// down again. err nil: it can; else it wraps cudaprobe.ErrUnsupported and says why,
// and what would help. weakness is what a gate here cannot do; nil: nothing.
func Check() (weakness, err error) {
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
