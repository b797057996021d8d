// Package sim simulates the GPUs of one node, well enough to develop and to test
// against without any: real processes, in containers too, compute on them.
//
// A GPU is the whole of it. A tenant is a process that uses it: in this program
// (Attach), or any process over a unix socket (Serve), for which sim/cuda is a
// libcuda.so.1 that speaks the protocol. Dial, or GPU.Device, reads the cards as
// NVML would. The faults in faults.go are switched by the program that holds the
// GPU; no tenant can.
//
// What is simulated, after measurements on an H200:
//   - Creating a context takes time and holds memory; the process is listed only
//     some time after the call. The memory is in use at once. So it is with
//     allocations, where they take time. Part of a creation can be done for one
//     process at a time (ContextShared).
//   - Kernels of different processes take turns of their time slices, and a switch costs
//     something; one process alone pays nothing (sim/compute).
//   - Slices can be set and channels switched off and on from outside, as the resource
//     manager does it (channels.go, simrm).
//   - A kernel that was launched runs to its end whether its process is running,
//     frozen or dead. Transfers are asked for by the tenant piece by piece, so
//     that a frozen one makes no progress.
//   - When a process ends, what it had queued is dropped at once. While its kernel
//     in flight runs on, it stays listed and keeps its memory, as a driver keeps a
//     context until it can be torn down. Then all of it is free. A kernel that is off
//     the card ends with its process.
//   - Memory runs out with an error. Utilisation lags.
//   - Processes can be locked, checkpointed, restored and unlocked as by the driver's
//     checkpoint API, by their own threads: a frozen one hangs the call. A restore
//     without room loses the process.
//
// Nothing is computed: memory on these cards has a size and no content.
//
// The package imports exporter/device, exporter/device/sim/compute, the standard library and
// golang.org/x/sys.
package sim

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/exporter/device/sim/compute"
)

// Errors that a tenant sees. The protocol carries their codes, see errorCode.
var (
	ErrOutOfMemory = errors.New("out of GPU memory")
	ErrNoDevice    = errors.New("no such GPU")
	ErrNoContext   = errors.New("no context on this GPU")
	ErrInvalid     = errors.New("invalid argument")
	ErrLost        = errors.New("GPU is lost, or the driver was unloaded")
	ErrExited      = errors.New("process has ended")
)

// GPU is a node's set of simulated cards. It is safe for concurrent use.
type GPU struct {
	opts Options
	// creating is taken by whoever the driver works for, of those that create a context.
	creating chan struct{}

	mu      sync.Mutex
	units   []*unit
	procs   map[int]*Process // live ones by PID
	owners  compute.Owner    // last one given
	clients uint32           // how many were given
	timer   *time.Timer      // fires at the next event of any unit; nil before the first
	faults  faults

	casualties Casualties

	cards  []*cardState
	pids   map[compute.Owner]int // of every context that there ever was
	loaded time.Time             // when the driver was loaded
}

// unit is what work runs on: a card without MIG, or one MIG instance.
type unit struct {
	info     device.GPU // identity only
	speed    Speed
	compute  *compute.Unit
	contexts []*gpuContext // in order of creation
	lost     bool
	queryErr error
	copied   map[Direction]uint64 // bytes by now
	before   float64              // J that the work had used when the driver was loaded

	smTime time.Time // when sm was read
	sm     map[compute.Owner]float64
}

// New returns the GPUs that opts describe. It starts nothing.
func New(opts Options) (*GPU, error) {
	opts = opts.withDefaults()
	if err := opts.check(); err != nil {
		return nil, fmt.Errorf("simulated GPU: %w", err)
	}
	g := &GPU{opts: opts, procs: map[int]*Process{}, creating: make(chan struct{}, 1),
		pids: map[compute.Owner]int{}, loaded: time.Now()}
	g.faults.driver = opts.Driver
	for i, c := range opts.Cards {
		g.cards = append(g.cards, newCard(c, i))
		if len(c.Instances) == 0 {
			g.addUnit(c, Instance{Share: 1}, device.GPU{UUID: c.UUID, Index: i, Name: c.Name, MemoryTotal: c.Memory})
		}
		for _, in := range c.Instances {
			g.addUnit(c, in, device.GPU{UUID: in.UUID, Index: i, Parent: c.UUID, Name: in.Name, MemoryTotal: in.Memory})
		}
	}
	return g, nil
}

func (g *GPU) addUnit(c Card, in Instance, info device.GPU) {
	g.units = append(g.units, &unit{
		info:    info,
		speed:   c.Speed.Faster(in.Share),
		compute: compute.NewUnit(g.opts.TimeSlice, g.opts.SwitchCost),
		copied:  map[Direction]uint64{},
	})
	g.units[len(g.units)-1].compute.DrawAtFirst(c.Power.Work * in.Share)
}

// UUIDs names the cards and MIG instances that work can run on, in the order in
// which a tenant numbers them.
func (g *GPU) UUIDs() []string {
	var uuids []string
	for _, u := range g.units {
		uuids = append(uuids, u.info.UUID)
	}
	return uuids
}

// advance brings every unit to the present and frees what dead processes held.
// The caller holds mu, and calls rearm when it has changed something.
func (g *GPU) advance() time.Time {
	now := time.Now()
	for _, u := range g.units {
		u.compute.Advance(now)
		u.reap(g.opts)
	}
	return now
}

// rearm sets the timer for the next event. The caller holds mu.
func (g *GPU) rearm() {
	wait := time.Duration(math.MaxInt64)
	for _, u := range g.units {
		if next, ok := u.compute.Next(); ok {
			wait = min(wait, time.Until(next))
		}
	}
	switch {
	case wait == math.MaxInt64:
		if g.timer != nil {
			g.timer.Stop()
		}
	case g.timer == nil:
		g.timer = time.AfterFunc(wait, g.tick)
	default:
		g.timer.Reset(wait)
	}
}

func (g *GPU) tick() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.advance()
	g.rearm()
}

// unitAt checks that tenants can use unit i.
func (g *GPU) unitAt(i int) (*unit, error) {
	if i < 0 || i >= len(g.units) {
		return nil, fmt.Errorf("%w: %d of %d", ErrNoDevice, i, len(g.units))
	}
	if u := g.units[i]; !u.lost && !g.faults.unloaded {
		return u, nil
	}
	return nil, ErrLost
}
