package rm_test

import (
	"context"
	"errors"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laxity/laxity/internal/rm"
	"github.com/laxity/laxity/internal/rm/rmtest"
)

// The bounds of a search, as README.md says them.
const (
	rate  = 100_000
	saved = 16384
	// reading is what the objects of a client with one context cost, the first time.
	reading = 2048 + 100
	again   = 64 + 20 // objects behind the last one, and what is known
)

// finish asks again every 50 ms until the search has ended, and returns how long that took
// and all results.
func finish(t *testing.T, fake *rmtest.RM, m *rm.Manager, p rm.Process) (took time.Duration, results [][]rm.Group) {
	t.Helper()
	for {
		groups, err := m.Find(t.Context(), p)
		results = append(results, groups)
		if err == nil {
			return took, results
		}
		if !errors.Is(err, rm.ErrUnfinished) || took > time.Minute {
			t.Fatalf("after %v: %v", took, err)
		}
		fake.Advance(50 * time.Millisecond)
		took += 50 * time.Millisecond
	}
}

// A program that was there before us, and made its context a moment ago.
func TestFindOldProcessWithNewClient(t *testing.T) {
	for name, counter := range map[string]int{"young machine": 30, "old machine": 0x60000, "wrapped a moment ago": 0xfffff} {
		t.Run(name, func(t *testing.T) {
			fake := rmtest.New(gpu0)
			fake.SkipClients(counter)
			p := fake.Start(10)
			fake.Advance(time.Minute)
			m := manager(fake)
			g := p.Context(p.OpenFile(5), 0)
			fake.SkipClients(300)
			found(t, m, p.ID(), g)
			first := fake.Calls("ioctl")
			found(t, m, p.ID(), g)
			if second := fake.Calls("ioctl") - first; first > 2*512+reading || second > again {
				t.Errorf("%d ioctls, and %d to find it again", first, second)
			}
		})
	}
}

func TestFindOldProcessWithOldClient(t *testing.T) {
	for name, since := range map[string]int{"half a round ago": 0x80000, "from before the wrap": 0xffff0} {
		t.Run(name, func(t *testing.T) {
			fake := rmtest.New(gpu0)
			fake.SkipClients(0x20)
			p, g := startTenant(fake, 10)
			fake.SkipClients(since)
			m := manager(fake)
			took, results := finish(t, fake, m, p.ID())
			if got := results[len(results)-1]; !reflect.DeepEqual(got, []rm.Group{g}) {
				t.Errorf("found %+v, want %+v", got, g)
			}
			if want := time.Duration(since) * time.Second / rate; took > want {
				t.Errorf("it took %v, want at most %v", took, want)
			}
			if n := fake.Calls("ioctl"); n > since+reading+512 {
				t.Errorf("%d ioctls", n)
			}
		})
	}
}

// Whatever a search still looks for, what it has found is there at once.
func TestUnfinishedFindReturnsWhatItHas(t *testing.T) {
	fake := rmtest.New(gpu0)
	fake.SkipClients(0x1000)
	p := fake.Start(10)
	p.OpenEmpty(4)
	g := p.Context(p.OpenFile(5), 0)
	m := manager(fake)
	got, err := m.Find(t.Context(), p.ID())
	if !errors.Is(err, rm.ErrUnfinished) || !reflect.DeepEqual(got, []rm.Group{g}) {
		t.Fatalf("found %+v, %v", got, err)
	}
	took, results := finish(t, fake, m, p.ID())
	for _, got := range results {
		if !reflect.DeepEqual(got, []rm.Group{g}) {
			t.Fatalf("found %+v meanwhile", got)
		}
	}
	if took < 10*time.Second {
		t.Errorf("all handles were asked for in %v", took)
	}
	before := fake.Calls("ioctl")
	late := p.Context(p.NewClient(4), 0) // a client that is made now is found by the next mark
	fake.Advance(25 * time.Millisecond)
	found(t, m, p.ID(), g, late)
	if n := fake.Calls("ioctl") - before; n > reading+2*again {
		t.Errorf("%d ioctls for a new client", n)
	}
}

func TestFindGoesOnWhereItWasBroken(t *testing.T) {
	fake := rmtest.New(gpu0)
	p, g := startTenant(fake, 10)
	fake.SkipClients(0x1800)
	m := manager(fake)
	ctx, cancel := context.WithCancel(t.Context())
	var seen atomic.Int64
	fake.Hook(func(*rmtest.Call) {
		if seen.Add(1) == 0x1100 {
			cancel()
		}
	})
	if _, err := m.Find(ctx, p.ID()); !errors.Is(err, context.Canceled) {
		t.Fatalf("find with a context that ended: %v", err)
	}
	found(t, m, p.ID(), g)
	if n := seen.Load(); n > 0x1800+reading+512 {
		t.Errorf("the two searches made %#x ioctls", n)
	}
}

// The file is closed, and its client's handle is another process's after a wrap.
func TestClientHandleUsedAgain(t *testing.T) {
	fake, m := machine(t)
	p, g := startTenant(fake, 10)
	found(t, m, p.ID(), g)
	p.CloseFile(5)
	fake.SkipClients(int(g.Client) - 0xc1d00000 + 0x100000 - 2) // where it was, but for our own
	other := fake.Start(11)
	for range 3 {
		other.Context(other.OpenFile(5), 0)
		other.CloseFile(5)
	}
	fake.SkipClients(0x100000 - 3)
	theirs := other.Context(other.OpenFile(5), 0)
	p.OpenEmpty(5)
	finish(t, fake, m, p.ID())
	mine := p.Context(p.NewClient(5), 0)
	fake.Advance(25 * time.Millisecond)
	found(t, m, p.ID(), mine)
	_, results := finish(t, fake, m, other.ID())
	if got := results[len(results)-1]; len(got) != 1 || got[0].Client != theirs.Client {
		t.Errorf("the other has %+v, want %+v", got, theirs)
	}
}

// After a wrap a handle may be taken: the client is then above the counter.
func TestClientThatWasMovedUp(t *testing.T) {
	fake, m := machine(t)
	others := fake.Start(9)
	for fd := range 3 {
		others.OpenFile(fd)
	}
	fake.SkipClients(0x100000 - 3)
	if err := m.Mark(t.Context()); err != nil {
		t.Fatal(err)
	}
	fake.Advance(time.Second)
	p, g := startTenant(fake, 10)
	if g.Client < 0xc1d00400 {
		t.Fatalf("it has client %#x: this test tests nothing", g.Client)
	}
	for tries := 1; ; tries++ {
		groups, err := m.Find(t.Context(), p.ID())
		if err == nil && len(groups) == 1 {
			break
		}
		if err != nil || tries == 10 {
			t.Fatalf("after %d searches: %+v, %v", tries, groups, err)
		}
		fake.Advance(50 * time.Millisecond)
	}
}

// A daemon that has seen a process without the device knows that its clients are younger.
func TestFindOldProcessThatOpensTheDeviceLater(t *testing.T) {
	fake := rmtest.New(gpu0)
	fake.SkipClients(0x50000)
	p := fake.Start(10)
	fake.Advance(time.Minute)
	m := manager(fake)
	if err := m.Mark(t.Context()); err != nil {
		t.Fatal(err)
	}
	found(t, m, p.ID())
	p.OpenEmpty(5)
	before := fake.Calls("ioctl")
	found(t, m, p.ID()) // no client yet
	g := p.Context(p.NewClient(5), 0)
	fake.Advance(25 * time.Millisecond)
	found(t, m, p.ID(), g)
	if n := fake.Calls("ioctl") - before; n > 2*512+reading {
		t.Errorf("%d ioctls", n)
	}
}

func TestForkOfAnOldProcessIsFoundByItsParent(t *testing.T) {
	fake := rmtest.New(gpu0)
	p, _ := startTenant(fake, 10)
	fake.SkipClients(0x3000)
	m := manager(fake)
	finish(t, fake, m, p.ID())
	child := p.Fork(11)
	before := fake.Calls("ioctl")
	if got := must(m.Find(t.Context(), child.ID())); len(got) != 1 {
		t.Errorf("the child has %+v", got)
	}
	if n := fake.Calls("ioctl") - before; n > 512+reading {
		t.Errorf("%d ioctls", n)
	}
}

func TestObjectThatWasOvertakenIsFound(t *testing.T) {
	fake, m := machine(t)
	p, g := startTenant(fake, 10)
	found(t, m, p.ID(), g)
	found(t, m, p.ID(), p.FillHole(g, g.Subdevice+2))
}

// What a cheap look misses is found within ten seconds.
func TestObjectsBehindAGapAreFoundLater(t *testing.T) {
	fake, m := machine(t)
	p, g := startTenant(fake, 10)
	found(t, m, p.ID(), g)
	p.SkipObjects(g.Client, 60)
	near := p.Context(g.Client, 1)
	found(t, m, p.ID(), g, near)
	p.SkipObjects(g.Client, 500)
	far := p.Context(g.Client, 0)
	found(t, m, p.ID(), g, near)
	fake.Advance(10 * time.Second)
	found(t, m, p.ID(), g, near, far)
}
