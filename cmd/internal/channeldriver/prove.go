package channeldriver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/exporter/device/nvml"
	"github.com/laxity/laxity/exporter/device/sim/simrm"
	"github.com/laxity/laxity/internal/rm"
	"github.com/laxity/laxity/internal/rm/selftest"
	"github.com/laxity/laxity/internal/rm/selftest/subject"
)

// ProveOptions of Prove.
type ProveOptions struct {
	// Device is as in `laxity up --device`.
	Device string
	// StateDir is where results of self-tests are remembered.
	StateDir string
	// Wanted: the actuator is to hold by channels. Without it nothing is tested.
	Wanted bool
	// Observe gets each call to the resource manager; may be nil.
	Observe func(call string, took time.Duration, err error)
}

const (
	// proveLimit bounds the self-tests together, and the question whether a simulated GPU
	// answers. A helper takes some 0.5 s to make a context, on a busy machine longer.
	proveLimit = 20 * time.Second
	// markEvery is how old a mark of the client handles is at most: the search for a process
	// begins at the last one before its start.
	markEvery = 5 * time.Second
)

// Prove opens the driver for an actuator, which must know that it works: on each GPU here a
// self-test shows that, or has done so before for this driver and card. Else it says why
// not, and what it returns is for undoing alone, as Open; and so it is where it is not wanted. It works until the program ends.
func Prove(ctx context.Context, o ProveOptions) (channels.Driver, string) {
	if !o.Wanted {
		return Open(o.Device), ""
	}
	ctx, cancel := context.WithTimeout(ctx, proveLimit)
	defer cancel()
	driver, err := prove(ctx, o)
	if err != nil {
		return Open(o.Device), err.Error()
	}
	return driver, ""
}

func prove(ctx context.Context, o ProveOptions) (channels.Driver, error) {
	if socket, ok := strings.CutPrefix(o.Device, "sim:"); ok {
		m := simrm.New(socket)
		return m, m.Check(ctx)
	}
	cards, err := list(ctx)
	if err != nil {
		return nil, err
	}
	kernel := rm.System()
	version, err := kernel.Driver()
	if err != nil {
		return nil, err
	}
	m := rm.New(kernel, rm.Options{Proven: []string{version}, Observe: o.Observe})
	for _, c := range cards {
		if err := test(ctx, m, kernel, version, c, filepath.Join(o.StateDir, "channels.json")); err != nil {
			return nil, fmt.Errorf("GPU %d (%s), driver %s: %w", c.Index, c.Name, version, err)
		}
	}
	if err := m.Mark(ctx); err != nil {
		return nil, err
	}
	go func() {
		for range time.Tick(markEvery) {
			ctx, cancel := context.WithTimeout(context.Background(), markEvery)
			_ = m.Mark(ctx) // the next search is longer
			cancel()
		}
	}()
	return m, nil
}

// list reads the GPUs once.
func list(ctx context.Context) ([]device.GPU, error) {
	d, err := nvml.Open()
	if err != nil {
		return nil, err
	}
	defer d.Close()
	r, err := d.Read(ctx)
	if err != nil {
		return nil, err
	}
	if len(r.GPUs) == 0 {
		return nil, errors.New("there is no GPU")
	}
	return r.GPUs, nil
}

// test is nil where both switching and slices are proven.
func test(ctx context.Context, m *rm.Manager, kernel rm.Kernel, version string, gpu device.GPU, memory string) error {
	r, known, err := selftest.Recall(memory, version, gpu.UUID)
	if err != nil || !known {
		card := selftest.Card{UUID: gpu.UUID, Free: gpu.MemoryTotal - gpu.MemoryUsed, Exclusive: gpu.Exclusive}
		r, err = selftest.Run(ctx, m, version, card, func(ctx context.Context) (selftest.Subject, error) {
			return startHelper(ctx, kernel, gpu.UUID)
		})
		if err != nil {
			return err
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(memory), 0o700), selftest.Remember(memory, r)); err != nil {
			return err
		}
	}
	if !r.Switch || !r.Slices {
		return fmt.Errorf("the self-test of %s failed: %s", r.At.Format(time.DateTime), r.Reason)
	}
	return nil
}

// HelperName is the hidden command with which a program starts itself as a helper.
const HelperName = "channel-subject"

// HelperMeans is its help.
const HelperMeans = "Run a tiny kernel for the self-test of channel control, which starts it."

// Help is the hidden command.
func Help() error { return subject.Serve(selftest.SharedFD) }

func startHelper(ctx context.Context, kernel rm.Kernel, gpu string) (selftest.Subject, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program, to start a helper: %w", err)
	}
	return selftest.Start(ctx, kernel, []string{self, HelperName}, gpu)
}
