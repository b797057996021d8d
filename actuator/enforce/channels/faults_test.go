package channels_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/actuator/enforce/channels/channelstest"
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
	return newRigIn(t, t.TempDir(), o)
}

// newRigIn makes a rig with this folder. Without other options no lease ends, and its calls may take long.
func newRigIn(t *testing.T, dir string, o channels.Options) *rig {
	t.Helper()
	if o.Deadline == 0 {
		o.Deadline = time.Minute
	}
	if o.After == nil {
		o.After = neverEnds
	}
	r := &rig{Machine: channelstest.NewMachine()}
	r.driver = &channelstest.Faulty{Driver: r.Machine}
	o.Driver, o.Dir, o.State, o.Settle = r.driver, dir, r.State, time.Nanosecond
	e, err := channels.New(o)
	if err != nil {
		t.Fatal(err)
	}
	r.Enforcer = e
	return r
}

// neverEnds is a timer of leases.
func neverEnds(time.Duration, func()) (stop func()) { return func() {} }

func target(p ...rm.Process) channels.Target { return channels.Target{Processes: p} }

func check(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) || (err != nil) != (want != nil) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

var takeOff = channels.Standing{Off: true}

// once fails the first call of this name. Processes are worked on in parallel, so calls are too.
func once(name string) func(string) error {
	var failed atomic.Bool
	return func(call string) error {
		if call == name && failed.CompareAndSwap(false, true) {
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
	_, err = r.Inspect(t.Context(), target(p), takeOff)
	check(t, err, channels.ErrNoGroup)
	if n := r.Off(p); n != 0 {
		t.Errorf("%d channels are off and forgotten", n)
	}
}

// The slice of a group that a search overlooks is put back with its entry on record.
func TestOverlookedGroupHasItsOwnSlice(t *testing.T) {
	r := newRig(t, channels.Options{})
	o := &overlooks{Driver: r.Machine}
	r.driver.Driver = o
	p := r.Start(1, gpuNames[0])
	own := r.Slices(p)
	for range 2 { // the first one looks
		_, err := r.Inspect(t.Context(), target(p), channels.Standing{Slice: time.Second})
		check(t, err, nil)
	}
	if got := r.Slices(p); slices.Equal(got, own) {
		t.Fatalf("its slice is its own: %v", got)
	}
	o.less = true
	_, _ = r.Inspect(t.Context(), target(p), channels.Standing{Slice: time.Second})
	if got := r.Slices(p); !slices.Equal(got, own) {
		t.Errorf("slices of %v with nothing on record, of its own %v", got, own)
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
	_, err = r.Inspect(t.Context(), target(p), takeOff)
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

// A fork has its parent's descriptors, and so the same groups.
func TestForkSharesGroups(t *testing.T) {
	r := newRig(t, channels.Options{})
	p, child := r.Start(1, gpuNames[0]), r.Start(2)
	r.driver.Driver = forked{r.Machine, p, child}
	_, err := r.Inspect(t.Context(), target(p, child, p), takeOff)
	check(t, err, nil)
	res, err := r.Inspect(t.Context(), target(child, p), takeOff) // in another order
	check(t, err, nil)
	if n := r.Off(p); n != 8 {
		t.Errorf("%d channels are off", n)
	}
	list, err := r.Records()
	check(t, err, nil)
	if len(res.Groups) != 1 || len(list) != 1 {
		t.Errorf("groups %+v, records %+v; want one", res.Groups, list)
	}
}

// A fork that counts as a task of its own owns none of its parent's groups, whoever is seen first: its end
// leaves the parent on.
func TestForkOwnsNoGroupOfItsParent(t *testing.T) {
	for name, childFirst := range map[string]bool{"the parent is seen first": false, "the child is seen first": true} {
		for end, dies := range map[string]bool{"it lives": false, "it ends while it is off": true} {
			t.Run(name+", "+end, func(t *testing.T) {
				r := newRig(t, channels.Options{})
				p, child := r.Start(1, gpuNames[0]), r.Start(2)
				r.driver.Driver = forked{r.Machine, p, child}
				if !childFirst {
					_, err := r.Inspect(t.Context(), target(p), channels.Standing{})
					check(t, err, nil)
				}
				_, err := r.Inspect(t.Context(), target(child), takeOff)
				if want := map[bool]error{false: channels.ErrNoGroup}[childFirst]; !errors.Is(err, want) {
					t.Fatalf("%v, want %v", err, want)
				}
				if dies {
					r.Kill(child)
				}
				_, err = r.Inspect(t.Context(), target(p), channels.Standing{})
				check(t, err, nil)
				list, err := r.Records()
				check(t, err, nil)
				if n := r.Off(p); n != 0 || len(list) != 0 {
					t.Errorf("%d channels are off, on record: %+v", n, list)
				}
			})
		}
	}
}

// A group whose handle another process had before is its own: that one destroyed its context, and lives on.
func TestHandleThatAnotherProcessHad(t *testing.T) {
	r := newRig(t, channels.Options{})
	p, later := r.Start(1, gpuNames[0]), r.Start(2, gpuNames[0])
	_, err := r.Inspect(t.Context(), target(p), channels.Standing{})
	check(t, err, nil)
	old, err := r.Find(t.Context(), p)
	check(t, err, nil)
	r.DropGroup(p)
	r.driver.Driver = reused{r.Machine, later, old[0]}
	_, err = r.Inspect(t.Context(), target(later), takeOff)
	check(t, err, nil)
	if n := r.Off(later); n != 8 {
		t.Errorf("%d channels are off", n)
	}
}

// reused lets a process's group have the handles that another one's had.
type reused struct {
	channels.Driver
	process rm.Process
	was     rm.Group
}

func (d reused) Find(ctx context.Context, p rm.Process) ([]rm.Group, error) {
	list, err := d.Driver.Find(ctx, p)
	if p == d.process && len(list) > 0 {
		list = slices.Clone(list)
		list[0].Client, list[0].Handle = d.was.Client, d.was.Handle
	}
	return list, err
}

func (d reused) Switch(ctx context.Context, groups []rm.Group, on bool) error {
	its, err := d.Driver.Find(ctx, d.process)
	if err != nil || groups[0].Process != d.process {
		return d.Driver.Switch(ctx, groups, on)
	}
	return d.Driver.Switch(ctx, its, on)
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

func (f forked) Switch(ctx context.Context, groups []rm.Group, on bool) error {
	groups = slices.Clone(groups)
	for i := range groups {
		groups[i].Process = f.parent // by an inherited descriptor it is the same
	}
	return f.Driver.Switch(ctx, groups, on)
}
