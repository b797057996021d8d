package rm_test

import (
	"errors"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laxity/laxity/internal/rm"
	"github.com/laxity/laxity/internal/rm/rmtest"
)

const (
	gpu0 = "GPU-00000000-1111-2222-3333-444444444444"
	gpu1 = "GPU-55555555-6666-7777-8888-999999999999"
)

// patience bounds each call of a Manager: none takes so long, unless it hangs.
const patience = time.Minute

// manager waits longer for a call than a busy machine takes for one.
func manager(fake *rmtest.RM) *rm.Manager { return rm.New(fake, rm.Options{Timeout: patience}) }

// machine returns a fake resource manager and a Manager of it that has made its mark.
func machine(t *testing.T) (*rmtest.RM, *rm.Manager) {
	t.Helper()
	fake := rmtest.New(gpu0, gpu1)
	m := manager(fake)
	if err := m.Mark(t.Context()); err != nil {
		t.Fatal(err)
	}
	fake.Advance(time.Second)
	t.Cleanup(func() {
		if n := fake.Held(); n != 0 {
			t.Errorf("%d descriptors are still open", n)
		}
	})
	return fake, m
}

// tenant starts a process with one context.
func startTenant(fake *rmtest.RM, pid int) (*rmtest.Process, rm.Group) {
	p := fake.Start(pid)
	return p, p.Context(p.OpenFile(5), 0)
}

func found(t *testing.T, m *rm.Manager, p rm.Process, want ...rm.Group) {
	t.Helper()
	got, err := m.Find(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) || (len(want) > 0 && !reflect.DeepEqual(got, want)) {
		t.Fatalf("found\n%+v, want\n%+v", got, want)
	}
}

func TestFindComputeGroup(t *testing.T) {
	fake, m := machine(t)
	p, g := startTenant(fake, 10)
	found(t, m, p.ID(), g)
}

func TestFindAgainAfterNewContextsStreamsGPUsAndFiles(t *testing.T) {
	fake, m := machine(t)
	p := fake.Start(10)
	found(t, m, p.ID())
	client := p.OpenFile(5)
	found(t, m, p.ID())
	a := p.Context(client, 0)
	found(t, m, p.ID(), a)
	b := p.Context(client, 1)
	found(t, m, p.ID(), a, b)
	b = p.AddChannels(b, 100)
	found(t, m, p.ID(), a, b)
	fake.SkipClients(5000)
	c := p.Context(p.OpenFile(6), 0)
	found(t, m, p.ID(), a, b, c)
	p.Free(client, a.Handle)
	found(t, m, p.ID(), b, c)
	p.CloseFile(5)
	found(t, m, p.ID(), c)
}

func TestFindIsCheapForNewProcesses(t *testing.T) {
	fake, m := machine(t)
	fake.SkipClients(300)
	p, g := startTenant(fake, 10)
	before := fake.Calls("ioctl")
	found(t, m, p.ID(), g)
	first := fake.Calls("ioctl") - before
	if first > 300+2048+100 {
		t.Errorf("%d ioctls, for 300 handles of others", first)
	}
	found(t, m, p.ID(), g)
	if again := fake.Calls("ioctl") - before - first; again > 64+20 {
		t.Errorf("%d ioctls to find it again", again)
	}
}

func TestFindCostsNothingWithoutTheDevice(t *testing.T) {
	fake, m := machine(t)
	p := fake.Start(10)
	before := fake.Calls("ioctl")
	found(t, m, p.ID())
	if n := fake.Calls("ioctl") - before; n != 0 {
		t.Errorf("%d ioctls for a process that has not opened the device", n)
	}
}

func TestFindProcessThatIsGone(t *testing.T) {
	fake, m := machine(t)
	gone, _ := startTenant(fake, 10)
	found(t, m, rm.Process{PID: 10, Start: gone.ID().Start}, must(m.Find(t.Context(), gone.ID()))...)
	gone.Kill()
	exiting, _ := startTenant(fake, 11)
	exiting.Exit()
	fake.Advance(time.Second)
	startTenant(fake, 10) // its PID is used again
	for _, p := range []rm.Process{gone.ID(), exiting.ID(), {PID: 99, Start: 1}} {
		if groups, err := m.Find(t.Context(), p); !errors.Is(err, rm.ErrGone) {
			t.Errorf("%v: %v, %v", p, groups, err)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestFindSkipsWhatIsPlanted(t *testing.T) {
	fake, m := machine(t)
	p, g := startTenant(fake, 10)
	for fd, device := range map[int]rm.Device{
		1: {},                                 // a file
		2: {Char: true, Major: 1, Minor: 255}, // a character device of another driver
		3: {Char: true, NVIDIA: true, Major: 195, Minor: 0},
		4: {NVIDIA: true, Major: 195, Minor: 255}, // a block device
	} {
		p.Plant(fd, device)
	}
	found(t, m, p.ID(), g)
}

func TestFindForkedChildSharesItsParentsGroups(t *testing.T) {
	fake, m := machine(t)
	p, g := startTenant(fake, 10)
	child := p.Fork(11)
	got := must(m.Find(t.Context(), child.ID()))
	if len(got) != 1 || got[0].Client != g.Client || got[0].Handle != g.Handle || got[0].PID != 11 {
		t.Errorf("the child has %+v, the parent %+v", got, g)
	}
	p.Kill()
	found(t, m, child.ID(), got...)
}

func TestFindClientThatVanishes(t *testing.T) {
	fake, m := machine(t)
	p, _ := startTenant(fake, 10)
	other := p.Context(p.OpenFile(6), 1)
	var asked atomic.Int64 // questions to a slow driver are asked together
	fake.Hook(func(c *rmtest.Call) {
		if c.Cmd == rmtest.CmdHandleInfo && c.Client != other.Client && !c.Alloc {
			if asked.Add(1) > 10 {
				c.Status = rmtest.StatusInvalidClient
			}
		}
	})
	_ = must(m.Find(t.Context(), p.ID()))
	fake.Hook(nil)
	p.CloseFile(5)
	found(t, m, p.ID(), other)
}

func TestFindRefusesMPS(t *testing.T) {
	fake, m := machine(t)
	p, g := startTenant(fake, 10)
	p.ServeMPS(g.Client)
	if groups, err := m.Find(t.Context(), p.ID()); !errors.Is(err, rm.ErrUnsupported) {
		t.Errorf("a server of MPS has groups %+v, %v", groups, err)
	}
}

func TestFindTellsOfErrors(t *testing.T) {
	fake, m := machine(t)
	p, _ := startTenant(fake, 10)
	fake.Hook(func(c *rmtest.Call) {
		if c.Cmd == rmtest.CmdGID {
			c.Status = rmtest.StatusNotSupported
		}
	})
	if _, err := m.Find(t.Context(), p.ID()); !errors.Is(err, rm.ErrUnsupported) {
		t.Errorf("a GPU that cannot be told: %v", err)
	}
}

func TestUnknownDriverIsRefused(t *testing.T) {
	fake := rmtest.New(gpu0)
	fake.SetDriver("610.10.01")
	proven := rm.New(fake, rm.Options{Proven: []string{"610.10.01"}, Timeout: patience})
	if err := proven.Mark(t.Context()); err != nil {
		t.Fatal(err)
	}
	fake.Advance(time.Second)
	p, g := startTenant(fake, 10)
	before := fake.Calls("ioctl")
	if _, err := manager(fake).Find(t.Context(), p.ID()); !errors.Is(err, rm.ErrUnsupported) {
		t.Errorf("find with an unknown driver: %v", err)
	}
	if fake.Calls("ioctl") != before {
		t.Error("it was asked all the same")
	}
	found(t, proven, p.ID(), g)
	fake.SetDriver("")
	if err := rm.New(fake, rm.Options{}).Supported(); !errors.Is(err, rm.ErrUnsupported) {
		t.Errorf("without a driver: %v", err)
	}
}

// A program that makes objects without end costs us no more than a bounded look at it.
func TestFindRefusesWhoHasTooMuch(t *testing.T) {
	for name, grow := range map[string]func(*rmtest.Process, rm.Group){
		"clients": func(p *rmtest.Process, _ rm.Group) {
			for range 100 {
				p.NewClient(5)
			}
		},
		"objects": func(p *rmtest.Process, g rm.Group) { p.AddChannels(g, 1<<16) },
	} {
		t.Run(name, func(t *testing.T) {
			fake, m := machine(t)
			p, g := startTenant(fake, 10)
			grow(p, g)
			for range 2 {
				before := fake.Calls("ioctl")
				if groups, err := m.Find(t.Context(), p.ID()); !errors.Is(err, rm.ErrUnsupported) {
					t.Errorf("%d groups, %v", len(groups), err)
				}
				if n := fake.Calls("ioctl") - before; n > 200_000 {
					t.Errorf("it took %d ioctls", n)
				}
				fake.Advance(time.Second)
			}
			other, theirs := startTenant(fake, 11)
			found(t, m, other.ID(), theirs)
		})
	}
}
