package rm_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/laxity/laxity/internal/rm"
	"github.com/laxity/laxity/internal/rm/rmtest"
)

// Neither classes that matter to nobody, nor handles far apart, nor descriptors make a look unbounded.
func TestFindRefusesWhoHasTooMuchOfAnything(t *testing.T) {
	for name, tc := range map[string]struct {
		grow func(*rmtest.Process, rm.Group)
		most int // ioctls
	}{
		"memory": {func(p *rmtest.Process, g rm.Group) { p.AddMemory(g.Client, 1<<17) }, 70_000},
		"memory of many clients": {func(p *rmtest.Process, _ rm.Group) {
			for range 20 {
				p.AddMemory(p.NewClient(5), 4000)
			}
		}, 150_000},
		"handles far apart": {func(p *rmtest.Process, g rm.Group) {
			for range 200 {
				p.SkipObjects(g.Client, 2000)
				p.AddMemory(g.Client, 1)
			}
		}, 270_000},
		"descriptors": {func(p *rmtest.Process, _ rm.Group) {
			for fd := range 1 << 17 {
				p.OpenEmpty(10 + fd)
			}
		}, 10},
	} {
		t.Run(name, func(t *testing.T) {
			fake, m := machine(t)
			p, g := startTenant(fake, 10)
			tc.grow(p, g)
			before := fake.Calls("ioctl")
			if groups, err := m.Find(t.Context(), p.ID()); !errors.Is(err, rm.ErrUnsupported) || errors.Is(err, rm.ErrUnfinished) {
				t.Errorf("%d groups, %v", len(groups), err)
			}
			if n := fake.Calls("ioctl") - before; n > tc.most {
				t.Errorf("it took %d ioctls", n)
			}
			before, listed := fake.Calls("ioctl"), fake.Calls("descriptors")
			for range 10 { // it is remembered
				fake.Advance(time.Second)
				if groups, err := m.Find(t.Context(), p.ID()); !errors.Is(err, rm.ErrUnsupported) {
					t.Errorf("%d groups, %v", len(groups), err)
				}
			}
			if n, d := fake.Calls("ioctl")-before, fake.Calls("descriptors")-listed; n > 0 || d > 0 {
				t.Errorf("10 times more took %d ioctls and %d lists of its descriptors", n, d)
			}
			fake.Advance(time.Minute) // it is searched once more
			listed = fake.Calls("descriptors")
			for range 10 {
				fake.Advance(time.Second)
				if groups, err := m.Find(t.Context(), p.ID()); !errors.Is(err, rm.ErrUnsupported) {
					t.Errorf("%d groups, %v", len(groups), err)
				}
			}
			if n := fake.Calls("descriptors") - listed; n != 1 {
				t.Errorf("a minute later its descriptors were listed %d times", n)
			}
			other, theirs := startTenant(fake, 11)
			found(t, m, other.ID(), theirs)
			p.Kill()
			if _, err := m.Find(t.Context(), p.ID()); !errors.Is(err, rm.ErrGone) {
				t.Errorf("after its end: %v", err)
			}
			again, groups := startTenant(fake, 10) // its PID is another's now
			found(t, m, again.ID(), groups)
		})
	}
}

func TestWhoHasLessIsFoundAgain(t *testing.T) {
	fake, m := machine(t)
	p, g := startTenant(fake, 10)
	found(t, m, p.ID(), g)
	for fd := range 1 << 17 {
		p.OpenEmpty(10 + fd)
	}
	if _, err := m.Find(t.Context(), p.ID()); !errors.Is(err, rm.ErrUnsupported) {
		t.Error(err)
	}
	for fd := range 1 << 17 {
		p.CloseFile(10 + fd)
	}
	fake.Advance(time.Minute)
	found(t, m, p.ID(), g)
	found(t, m, p.ID(), g)
}

// As many objects and descriptors as a training program has, and more.
func TestManyObjectsAreNoReasonToRefuse(t *testing.T) {
	fake, m := machine(t)
	p, g := startTenant(fake, 10)
	p.AddMemory(g.Client, 20_000)
	g = p.AddChannels(g, 1000)
	for i := range 5 {
		client := p.OpenFile(20 + i)
		p.AddMemory(client, 5000)
		p.SkipObjects(client, 1000)
		p.AddMemory(client, 1)
	}
	for fd := range 500 {
		p.OpenEmpty(100 + fd)
	}
	groups, err := m.Find(t.Context(), p.ID())
	for errors.Is(err, rm.ErrUnfinished) {
		fake.Advance(50 * time.Millisecond)
		groups, err = m.Find(t.Context(), p.ID())
	}
	if err != nil || len(groups) != 1 || groups[0].Handle != g.Handle || len(groups[0].Channels) != len(g.Channels) {
		t.Errorf("%d groups, %v", len(groups), err)
	}
}

// A search that has no time for all objects goes on with the rest.
func TestReadingGoesOnWhereItWasBroken(t *testing.T) {
	fake, m := machine(t)
	p, g := startTenant(fake, 10)
	p.AddMemory(g.Client, 30_000)
	last := p.Context(g.Client, 1)
	for tries, before := 1, fake.Calls("ioctl"); ; tries++ {
		ctx, cancel := context.WithCancel(t.Context())
		from := fake.Calls("ioctl")
		fake.Hook(func(*rmtest.Call) {
			if fake.Calls("ioctl")-from > 8000 {
				cancel()
			}
		})
		groups, err := m.Find(ctx, p.ID())
		cancel()
		fake.Hook(nil)
		if err == nil {
			if len(groups) != 2 || groups[1].Handle != last.Handle {
				t.Errorf("found %+v", groups)
			}
			if n := fake.Calls("ioctl") - before; n > 40_000 {
				t.Errorf("it took %d ioctls", n)
			}
			return
		}
		if !errors.Is(err, context.Canceled) || tries == 10 {
			t.Fatalf("try %d: %v", tries, err)
		}
	}
}
