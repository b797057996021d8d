package channels_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/actuator/enforce/channels/channelstest"
	"github.com/laxity/laxity/actuator/enforce/proc"
	"github.com/laxity/laxity/internal/rm"
)

// rig is an enforcer of a machine in memory, with a driver that can be broken.
type rig struct {
	*channelstest.Machine
	*channels.Enforcer
	driver *channelstest.Faulty
}

func newRig(t *testing.T, o channels.Options) *rig {
	t.Helper()
	r := &rig{Machine: channelstest.NewMachine()}
	r.driver = &channelstest.Faulty{Driver: r.Machine}
	o.Driver, o.Dir, o.State, o.Settle = r.driver, t.TempDir(), r.State, time.Nanosecond
	e, err := channels.New(o)
	if err != nil {
		t.Fatal(err)
	}
	r.Enforcer = e
	return r
}

func target(p ...rm.Process) channels.Target { return channels.Target{Processes: p} }

func check(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) || (err != nil) != (want != nil) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

var takeOff = channels.Standing{Off: true}

// once fails the first call of this name.
func once(name string) func(string) error {
	failed := false
	return func(call string) error {
		if call == name && !failed {
			failed = true
			return errDriver
		}
		return nil
	}
}

func TestFailedOffIsUndoneAtOnce(t *testing.T) {
	r := newRig(t, channels.Options{})
	p, other := r.Start(1, gpuNames[0]), r.Start(2, gpuNames[0])
	r.driver.After = once("switch") // it came into effect all the same
	_, err := r.Apply(t.Context(), target(p, other), takeOff)
	check(t, err, errDriver)
	if r.Off(p)+r.Off(other) != 0 {
		t.Errorf("%d and %d channels are off: all or none", r.Off(p), r.Off(other))
	}
	list, err := r.Records()
	check(t, err, nil)
	if len(list) != 0 {
		t.Errorf("on record: %+v", list)
	}
}

func TestFailedSliceIsSetAgain(t *testing.T) {
	r := newRig(t, channels.Options{})
	p := r.Start(1, gpuNames[0])
	s := channels.Standing{Slice: time.Second}
	_, err := r.Apply(t.Context(), target(p), s) // looks
	check(t, err, nil)
	r.driver.After = once("setslice")
	_, err = r.Apply(t.Context(), target(p), s)
	check(t, err, errDriver)
	r.Own(p, channelstest.OwnSlice) // it did not come into effect
	res, err := r.Apply(t.Context(), target(p), s)
	check(t, err, nil)
	if got := r.Slices(p); got[0] != time.Second || len(res.Changed) != 0 {
		t.Errorf("slices %v, %+v", got, res)
	}
	calls := len(r.Calls())
	_, err = r.Apply(t.Context(), target(p), s)
	check(t, err, nil)
	if more := r.Calls()[calls:]; len(more) != 0 {
		t.Errorf("a standing that is carried out already took the calls %v", more)
	}
}

// A slice that cannot be set is no reason to let somebody on.
func TestFailedSliceLeavesOff(t *testing.T) {
	r := newRig(t, channels.Options{})
	p := r.Start(1, gpuNames[0])
	_, err := r.Apply(t.Context(), target(p), channels.Standing{Slice: time.Second})
	check(t, err, nil)
	r.driver.After = once("setslice")
	res, err := r.Apply(t.Context(), target(p), channels.Standing{Off: true, Slice: time.Second})
	check(t, err, errDriver)
	if !res.Off || r.Off(p) != 8 {
		t.Errorf("result %+v, %d channels are off", res, r.Off(p))
	}
	check(t, r.Restore(t.Context(), p), nil)
}

// finds less than there is, for one time.
type overlooks struct {
	channels.Driver
	less bool
}

func (o *overlooks) Find(ctx context.Context, p rm.Process) ([]rm.Group, error) {
	list, err := o.Driver.Find(ctx, p)
	if o.less {
		list = nil
	}
	return list, err
}

func TestOverlookedGroupIsLetOn(t *testing.T) {
	r := newRig(t, channels.Options{})
	o := &overlooks{Driver: r.Machine}
	r.driver.Driver = o
	p := r.Start(1, gpuNames[0])
	_, err := r.Apply(t.Context(), target(p), takeOff)
	check(t, err, nil)
	o.less = true
	_, err = r.Look(t.Context(), target(p), takeOff)
	check(t, err, channels.ErrNoGroup)
	if n := r.Off(p); n != 0 {
		t.Errorf("%d channels are off and forgotten", n)
	}
}

// A context that was destroyed and made again while nobody looked.
func TestChangedGroupsAreFoundAgain(t *testing.T) {
	r := newRig(t, channels.Options{})
	p := r.Start(1, gpuNames[0])
	_, err := r.Apply(t.Context(), target(p), takeOff)
	check(t, err, nil)
	check(t, r.Restore(t.Context(), p), nil)
	r.DropGroup(p)
	r.AddGroup(p, gpuNames[0])
	_, err = r.Apply(t.Context(), target(p), takeOff)
	check(t, err, nil)
	if n := r.Off(p); n != 8 {
		t.Errorf("%d channels are off", n)
	}
	r.DropGroup(p)
	check(t, r.Restore(t.Context(), p), nil)
	list, err := r.Records()
	check(t, err, nil)
	if len(list) != 0 {
		t.Errorf("on record: %+v", list)
	}
}

func TestStreamsMadeWhileOff(t *testing.T) {
	r := newRig(t, channels.Options{})
	p := r.Start(1, gpuNames[0])
	_, err := r.Apply(t.Context(), target(p), takeOff)
	check(t, err, nil)
	r.AddChannel(p)
	_, err = r.Look(t.Context(), target(p), takeOff)
	check(t, err, nil)
	if n := r.Off(p); n != 9 {
		t.Errorf("%d channels are off, want all 9", n)
	}
	calls := len(r.Calls())
	_, err = r.Apply(t.Context(), target(p), takeOff)
	check(t, err, nil)
	if more := r.Calls()[calls:]; len(more) != 0 {
		t.Errorf("a renewal took the calls %v", more)
	}
	check(t, r.Restore(t.Context(), p), nil)
	if n := r.Off(p); n != 0 {
		t.Errorf("%d channels are off", n)
	}
}

func TestTracedAndExitingAreLeftAlone(t *testing.T) {
	r := newRig(t, channels.Options{})
	p := r.Start(1, gpuNames[0])
	r.SetState(p, channels.Traced)
	_, err := r.Apply(t.Context(), target(p), takeOff)
	check(t, err, channels.ErrTraced)
	r.SetState(p, channels.Lives)
	_, err = r.Apply(t.Context(), target(p), takeOff)
	check(t, err, nil)
	r.SetState(p, channels.Traced) // a debugger comes while it is off
	_, err = r.Apply(t.Context(), target(p), takeOff)
	check(t, err, channels.ErrTraced)
	if n := r.Off(p); n != 0 {
		t.Errorf("%d channels are off beside a debugger", n)
	}
	r.SetState(p, channels.Lives)
	_, err = r.Apply(t.Context(), target(p), takeOff)
	check(t, err, nil)
	r.SetState(p, channels.Exiting)
	if left, err := r.RestoreAll(t.Context()); left != 1 || err == nil {
		t.Errorf("%d left, %v: it is on record until it is gone", left, err)
	}
	_, err = r.Apply(t.Context(), target(p), channels.Standing{})
	check(t, err, channels.ErrGone)
	if wrong := r.Wrong(); len(wrong) != 0 {
		t.Errorf("calls for a process that is exiting: %v", wrong)
	}
	r.Kill(p)
	if left, err := r.RestoreAll(t.Context()); left != 0 || err != nil {
		t.Errorf("%d left, %v", left, err)
	}
}

// A driver that hangs for one process delays neither the caller nor the others.
func TestHungCallDelaysNobody(t *testing.T) {
	r := newRig(t, channels.Options{Deadline: 50 * time.Millisecond})
	hung, other := r.Start(1, gpuNames[0]), r.Start(2, gpuNames[0])
	for _, p := range []rm.Process{hung, other} {
		_, err := r.Apply(t.Context(), target(p), channels.Standing{})
		check(t, err, nil)
	}
	began, release := make(chan struct{}), make(chan struct{})
	var first = true
	r.driver.Before = func(_ context.Context, call string) error {
		if call == "switch" && first {
			first = false
			close(began)
			<-release // whatever its context says
		}
		return nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { _, err := r.Apply(ctx, target(hung), takeOff); done <- err }()
	<-began
	cancel()
	check(t, <-done, context.Canceled)
	_, err := r.Apply(t.Context(), target(other), takeOff)
	check(t, err, nil)
	left, err := r.RestoreAll(t.Context())
	check(t, err, context.DeadlineExceeded)
	if left != 1 || r.Off(other) != 0 {
		t.Errorf("%d left, %d channels of the other are off", left, r.Off(other))
	}
	close(release)
	for left, err = r.RestoreAll(t.Context()); left != 0; left, err = r.RestoreAll(t.Context()) {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	}
	if n := r.Off(hung); n != 0 {
		t.Errorf("%d channels are off", n)
	}
}

// The search for the groups of an old process outlasts its callers, and is made once.
func TestLongSearchEndsOnce(t *testing.T) {
	r := newRig(t, channels.Options{})
	p := r.Start(1, gpuNames[0])
	began, release := make(chan struct{}), make(chan struct{})
	r.driver.Before = func(ctx context.Context, call string) error {
		if call == "find" {
			close(began) // a second one would panic
			<-release
			return ctx.Err()
		}
		return nil
	}
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		_, err := r.Apply(ctx, target(p), takeOff)
		check(t, err, context.DeadlineExceeded)
		cancel()
	}
	<-began
	close(release)
	_, err := r.Apply(t.Context(), target(p), takeOff)
	check(t, err, nil)
	if n := r.Off(p); n != 8 {
		t.Errorf("%d channels are off", n)
	}
}

// A fork has its parent's descriptors, and so the same groups.
func TestForkSharesGroups(t *testing.T) {
	r := newRig(t, channels.Options{})
	p, child := r.Start(1, gpuNames[0]), r.Start(2)
	r.driver.Driver = forked{r.Machine, p, child}
	res, err := r.Apply(t.Context(), target(p, child), takeOff)
	check(t, err, nil)
	list, err := r.Records()
	check(t, err, nil)
	if len(res.Groups) != 1 || len(list) != 1 {
		t.Errorf("groups %+v, records %+v; want one", res.Groups, list)
	}
}

type forked struct {
	channels.Driver
	parent, child rm.Process
}

func (f forked) Find(ctx context.Context, p rm.Process) ([]rm.Group, error) {
	list, err := f.Driver.Find(ctx, f.parent)
	for i := range list {
		list[i].Process = p
	}
	return list, err
}

func TestStateOf(t *testing.T) {
	runtime.LockOSThread() // who traces is a thread
	defer runtime.UnlockOSThread()
	begin := func(attr *syscall.SysProcAttr) (*exec.Cmd, rm.Process) {
		cmd := exec.CommandContext(t.Context(), "sleep", "1000")
		cmd.SysProcAttr = attr
		check(t, cmd.Start(), nil)
		stat, _ := proc.ReadStat("/proc", cmd.Process.Pid)
		return cmd, rm.Process{PID: cmd.Process.Pid, Start: stat.Start}
	}
	state := func(p rm.Process, want ...channels.State) {
		t.Helper()
		for {
			got, err := channels.StateOf(p)
			check(t, err, nil)
			if got == want[len(want)-1] {
				return
			}
			if !slices.Contains(want, got) {
				t.Fatalf("state %v, want %v", got, want)
			}
		}
	}
	cmd, p := begin(nil)
	state(p, channels.Lives)
	state(rm.Process{PID: p.PID, Start: p.Start - 1}, channels.Gone)
	check(t, cmd.Process.Kill(), nil)
	state(p, channels.Lives, channels.Exiting, channels.Gone) // a zombie holds nothing
	_ = cmd.Wait()
	state(p, channels.Gone)

	cmd, p = begin(&syscall.SysProcAttr{Ptrace: true})
	state(p, channels.Lives, channels.Traced)
	check(t, cmd.Process.Kill(), nil)
	_ = cmd.Wait()
}

// Actuator and guardian act on the same processes at the same time, as two programs do.
func TestManyAtOnce(t *testing.T) {
	m, dir := channelstest.NewMachine(), t.TempDir()
	var processes []rm.Process
	for pid := 1; pid <= 3; pid++ {
		processes = append(processes, m.Start(pid, gpuNames[0]))
	}
	var all []*channels.Enforcer
	for range 2 {
		e, err := channels.New(channels.Options{Driver: m, Dir: dir, State: m.State, Settle: time.Nanosecond, MaxOff: time.Millisecond, Deadline: time.Minute,
			After: func(time.Duration, func()) func() { return func() {} }})
		check(t, err, nil)
		all = append(all, e)
	}
	var wait sync.WaitGroup
	for n := range 6 {
		wait.Go(func() {
			random := rand.New(rand.NewPCG(uint64(n), 0)) //nolint:gosec // not a secret
			for range 200 {
				e, p := all[n%2], processes[random.IntN(len(processes))]
				var err error
				switch random.IntN(5) {
				case 0:
					_, err = e.Apply(t.Context(), target(p), takeOff)
				case 1:
					_, err = e.Look(t.Context(), target(p), channels.Standing{Slice: time.Duration(1+random.IntN(9)) * time.Millisecond})
				case 2:
					_, err = e.Apply(t.Context(), target(p), channels.Standing{})
				case 3:
					_, err = e.Sweep(t.Context(), 0)
				default:
					err = e.Restore(t.Context(), p)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	if left, err := all[0].RestoreAll(t.Context()); left != 0 || err != nil {
		t.Fatalf("%d left, %v", left, err)
	}
	for _, p := range processes {
		if n, s := m.Off(p), m.Slices(p); n != 0 || s[0] != channelstest.OwnSlice {
			t.Errorf("%d channels are off, slices %v", n, s)
		}
	}
}
