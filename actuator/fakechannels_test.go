package actuator_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator"
	"github.com/laxity/laxity/actuator/arbiter"
	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/actuator/enforce/channels/channelstest"
	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/internal/rm"
	"github.com/laxity/laxity/internal/statefolder"
)

const gpu1 = "GPU-1"

// driver is a machine whose calls for some processes fail or hang.
type driver struct {
	*channelstest.Machine
	mu      sync.Mutex
	called  map[int]bool  // by PID, whatever the call
	fails   map[int]error // setting a slice comes into effect and fails all the same
	hangs   map[int]bool
	freed   chan struct{}            // closed: nothing hangs any more
	off     map[rm.Process]time.Time // since when they are off
	longest time.Duration            // that a process was off
}

func (d *driver) note(pid int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.called[pid] = true
}

func (d *driver) wasCalled(pid int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.called[pid]
}

func (d *driver) fail(pid int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fails[pid] = err
}

func (d *driver) Find(ctx context.Context, p rm.Process) ([]rm.Group, error) {
	d.note(p.PID)
	return d.Machine.Find(ctx, p)
}

func (d *driver) Slice(ctx context.Context, g rm.Group) (time.Duration, error) {
	d.note(g.PID)
	return d.Machine.Slice(ctx, g)
}

func (d *driver) Switch(ctx context.Context, groups []rm.Group, on bool) error {
	for _, g := range groups {
		d.note(g.PID)
	}
	err := d.Machine.Switch(ctx, groups, on)
	for _, g := range groups {
		d.switched(g.Process)
	}
	return err
}

// switched measures how long a process is off.
func (d *driver) switched(p rm.Process) {
	d.mu.Lock()
	defer d.mu.Unlock()
	since, was := d.off[p]
	switch off := d.Off(p) > 0; {
	case off && !was:
		d.off[p] = time.Now()
	case was && !off:
		delete(d.off, p)
		d.longest = max(d.longest, time.Since(since))
	}
}

// longestOff is the longest time that a process was off.
func (d *driver) longestOff() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.longest
}

func (d *driver) SetSlice(ctx context.Context, g rm.Group, slice time.Duration) error {
	d.note(g.PID)
	d.mu.Lock()
	err, hangs := d.fails[g.PID], d.hangs[g.PID]
	d.mu.Unlock()
	if hangs {
		<-d.freed
	}
	return errors.Join(d.Machine.SetSlice(ctx, g, slice), err)
}

// divider is a bench whose actuator divides the time of GPUs, with processes in memory.
type divider struct {
	*bench
	*driver
	run  string
	mu   sync.Mutex
	live map[int]rm.Process
}

// benchless is one whose bench is still to be made, with options.
func benchless(t *testing.T) *divider {
	return &divider{run: t.TempDir(), live: map[int]rm.Process{}, driver: &driver{
		Machine: channelstest.NewMachine(), called: map[int]bool{}, fails: map[int]error{}, hangs: map[int]bool{}, freed: make(chan struct{}),
		off: map[rm.Process]time.Time{},
	}}
}

func newDivider(t *testing.T, change func(*actuator.Options)) *divider {
	t.Helper()
	v := benchless(t)
	v.bench = newBench(t, func(o *actuator.Options) {
		v.options(o)
		if change != nil {
			change(o)
		}
	})
	return v
}

func (v *divider) options(o *actuator.Options) {
	o.Mechanisms.Channels, o.RunDir, o.Config.Arbitrate = v.driver, v.run, config.Always
	dir := o.StateDir
	o.Mechanisms.NewChannels = func() (arbiter.Channels, error) {
		return channels.New(v.channels(dir))
	}
	o.StartOf = func(pid int) (uint64, bool) {
		v.mu.Lock()
		defer v.mu.Unlock()
		p, ok := v.live[pid]
		return p.Start, ok
	}
}

// recordFolder is the folder of the record of channels.
func recordFolder(run, stateDir string) string {
	state, err := statefolder.Of(stateDir)
	if err != nil {
		panic(err)
	}
	return channels.Folder(run, state)
}

// channels are the options of an actuator that keeps its state in dir. All calls for a process have
// a minute together: a busy machine takes longer than the second that they have else.
func (v *divider) channels(dir string) channels.Options {
	return channels.Options{Driver: v.driver, Dir: recordFolder(v.run, dir), State: v.State, Deadline: time.Minute}
}

// State is that of the bench, not the machine's.
func (v *divider) State(p rm.Process) (channels.State, error) { return v.driver.State(p) }

// state is the actuator's.
func (v *divider) state() *state.State { return v.bench.State() }

// process starts one with this PID and a channel group on each of these GPUs.
func (v *divider) process(pid int, gpus ...string) rm.Process {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.live[pid] = v.Start(pid, gpus...)
	return v.live[pid]
}

// kill ends a process.
func (v *divider) kill(p rm.Process) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.live, p.PID)
	v.Kill(p)
}

// begin starts a container with one process and one task on GPU 0.
func (v *divider) begin(id string, gpus ...string) rm.Process {
	p := v.process(101+len(v.source.containers), gpus...)
	v.engine.Run(id)
	v.source.start(id)
	return p
}

func (v *divider) slices(p rm.Process, want time.Duration) bool {
	is := v.Slices(p)
	return len(is) > 0 && !slices.ContainsFunc(is, func(d time.Duration) bool { return d != want })
}

func (v *divider) awaitSlice(p rm.Process, want time.Duration) {
	v.Helper()
	v.await("its slice is "+want.String(), func() bool { return v.slices(p, want) })
}

func (v *divider) awaitOwn(all ...rm.Process) {
	v.Helper()
	for _, p := range all {
		v.awaitSlice(p, channelstest.OwnSlice)
	}
}

// awaitNothingOnRecord: whoever looks at the folder alone finds nothing to undo.
func (v *divider) awaitNothingOnRecord() {
	v.Helper()
	e, err := channels.New(v.channels(v.dir))
	if err != nil {
		v.Fatal(err)
	}
	v.await("nothing is on record", func() bool { n, err := e.Pending(); return n == 0 && err == nil })
}

// hourly: nothing happens but by events and the keeper's own timer.
func hourly(o *actuator.Options) { o.Tick = time.Hour }
