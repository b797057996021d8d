package channeldriver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/laxity/laxity/actuator/config"
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
	// StateDir is the folder where results of self-tests are remembered.
	StateDir string
	// Wanted: the actuator is to hold by channels. Otherwise nothing is tested.
	Wanted bool
	// Observe gets each call to the resource manager; may be nil.
	Observe func(call string, took time.Duration, err error)
}

const (
	// proveLimit bounds all self-tests together, and the question whether a simulated GPU answers. A
	// helper takes some 0.5 s to make a context, longer on a busy machine.
	proveLimit = 20 * time.Second
	// markEvery is the greatest age of a mark of the client handles: the search for a process begins
	// at the last mark before its start.
	markEvery = 5 * time.Second
)

// Proven is what Prove found.
type Proven struct {
	// Driver is for holding if Why is empty, else for undoing only. Nil if not even that is possible.
	Driver channels.Driver
	// How says why it is known to work, Why says why it does not, for people; both are empty if it
	// is not wanted.
	How, Why string
	// Instances are the MIG instances on which it works.
	Instances config.Instances
}

// Prove opens the driver for an actuator, which must know that it works: a self-test shows that on
// each GPU here, now or earlier for this driver and card. A MIG instance on which it does not work is
// left as it is, if it works on any other GPU. If it does not work, or is not wanted, the result is for undoing only, as that of Open, and Why says why. It works until the program
// ends.
func Prove(ctx context.Context, o ProveOptions) Proven {
	if !o.Wanted {
		return Proven{Driver: Open(o.Device)}
	}
	ctx, cancel := context.WithTimeout(ctx, proveLimit)
	defer cancel()
	driver, shown, err := prove(ctx, o)
	if err != nil {
		return Proven{Driver: Open(o.Device), Why: err.Error()}
	}
	return Proven{Driver: driver, How: strings.Join(shown.how, "; "), Instances: shown.instances}
}

func prove(ctx context.Context, o ProveOptions) (_ channels.Driver, is shown, err error) {
	if socket, ok := strings.CutPrefix(o.Device, "sim:"); ok {
		m := simrm.New(socket)
		return m, shown{how: []string{"the simulated GPU answers"}, instances: config.Instances{All: true}}, m.Check(ctx)
	}
	cards, err := list(ctx)
	if err != nil {
		return nil, is, err
	}
	kernel := rm.System()
	version, err := kernel.Driver()
	if err != nil {
		return nil, is, err
	}
	m := rm.New(kernel, rm.Options{Proven: []string{version}, Observe: o.Observe})
	is, err = each(cards, func(c device.GPU) (selftest.Result, error) {
		return test(ctx, m, kernel, version, c, filepath.Join(o.StateDir, "channels.json"))
	})
	if err != nil {
		return nil, is, fmt.Errorf("driver %s: %w", version, err)
	}
	if err := m.Mark(ctx); err != nil {
		return nil, is, err
	}
	go func() {
		for range time.Tick(markEvery) {
			ctx, cancel := context.WithTimeout(context.Background(), markEvery)
			_ = m.Mark(ctx) // without the mark the next search takes longer
			cancel()
		}
	}()
	return m, is, nil
}

// shown is what the self-tests of all GPUs showed.
type shown struct {
	how       []string
	instances config.Instances
}

// each tests the GPUs, and stops at the first whole card that fails. Instances may fail, but not all that is here.
func each(gpus []device.GPU, test func(device.GPU) (selftest.Result, error)) (is shown, err error) {
	is.instances.Failed = map[string]string{}
	for _, g := range gpus {
		r, failed := test(g)
		if failed != nil {
			failed = fmt.Errorf("GPU %d (%s): %w", g.Index, g.Name, failed)
		}
		switch {
		case failed != nil && g.Parent == "":
			return is, failed
		case failed != nil:
			is.instances.Failed[g.UUID] = failed.Error()
			err = errors.Join(err, failed)
			continue
		case g.Parent != "":
			is.instances.Proven = append(is.instances.Proven, g.UUID)
		}
		is.how = append(is.how, says(g, r))
	}
	if len(is.how) > 0 {
		err = nil
	}
	return is, err
}

// says describes what a self-test showed.
func says(c device.GPU, r selftest.Result) string {
	ms := func(d time.Duration) string { return fmt.Sprintf("%.1f ms", d.Seconds()*1e3) }
	return fmt.Sprintf("GPU %d (%s, driver %s): the self-test of %s took a kernel off in %s and on in %s, and slices of 8:1 gave %.0f %%",
		c.Index, c.Name, r.Driver, r.At.Format(time.DateTime), ms(r.Off), ms(r.On), 100*r.Part)
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

// test returns the result of a self-test; the error is nil if both switching and slices are proven.
func test(ctx context.Context, m *rm.Manager, kernel rm.Kernel, version string, gpu device.GPU, memory string) (selftest.Result, error) {
	r, known, err := selftest.Recall(memory, version, gpu.UUID)
	if err != nil || !known {
		card := selftest.Card{UUID: gpu.UUID, Free: gpu.MemoryTotal - gpu.MemoryUsed, Exclusive: gpu.Exclusive}
		r, err = selftest.Run(ctx, m, version, card, func(ctx context.Context) (selftest.Subject, error) {
			return startHelper(ctx, kernel, gpu.UUID)
		})
		if err != nil {
			return r, err
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(memory), 0o700), selftest.Remember(memory, r)); err != nil {
			return r, err
		}
	}
	if !r.Switch || !r.Slices {
		return r, fmt.Errorf("the self-test of %s failed: %s", r.At.Format(time.DateTime), r.Reason)
	}
	return r, nil
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
