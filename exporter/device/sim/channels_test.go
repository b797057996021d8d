package sim_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/laxity/laxity/exporter/device/sim"
)

func one(t *testing.T, g *sim.GPU, pid int) sim.Group {
	t.Helper()
	list, err := g.Groups(t.Context(), sim.Tenant{PID: pid})
	must(t, err)
	if len(list) != 1 || len(list[0].Channels) != 8 {
		t.Fatalf("groups %+v, want one with 8 channels", list)
	}
	return list[0]
}

func ended(p *sim.Process) bool {
	ok, err := p.Query(0, 0)
	return ok && err == nil
}

func TestChannelsOffStopARunningKernel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGPU(t, sim.Options{})
		held := g.Attach(1)
		defer held.Exit()
		must(t, held.Open(t.Context(), 0))
		group := one(t, g, 1)
		_, err := held.LaunchFor(0, 100*time.Millisecond)
		must(t, err)
		began := time.Now()
		handles := []uint32{group.Handle}
		must(t, g.SwitchChannels(t.Context(), sim.Tenant{PID: 1}, group.Client, handles, false))
		if took := time.Since(began); took > 2*time.Millisecond || !g.Off(1) {
			t.Errorf("off after %v: %v", took, g.Off(1))
		}
		time.Sleep(time.Minute)
		if ended(held) {
			t.Error("it computed while it was off")
		}
		must(t, g.SwitchChannels(t.Context(), sim.Tenant{PID: 1}, group.Client, handles, true))
		began = time.Now()
		must(t, held.Sync(t.Context(), 0, 0))
		if took := time.Since(began); took < 98*time.Millisecond || took > 100*time.Millisecond {
			t.Errorf("it went on for %v, want what was left of 100 ms", took)
		}
	})
}

// Whatever the way of its end, a process that is off leaves nothing behind.
func TestEndWhileOff(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *sim.Process){
		"exit":            func(_ *testing.T, p *sim.Process) { p.Exit() },
		"destroy context": func(t *testing.T, p *sim.Process) { must(t, p.Close(0)) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGPU(t, sim.Options{})
				p := g.Attach(1)
				defer p.Exit()
				must(t, p.Open(t.Context(), 0))
				_, err := p.LaunchFor(0, time.Hour)
				must(t, err)
				group := one(t, g, 1)
				must(t, g.SwitchChannels(t.Context(), sim.Tenant{PID: 1}, group.Client, []uint32{group.Handle}, false))
				end(t, p)
				if left := readOne(t, g); left.MemoryUsed != 0 || len(left.Processes) != 0 {
					t.Errorf("left: %+v", left)
				}
				if name == "destroy context" {
					want(t, g.SwitchChannels(t.Context(), sim.Tenant{PID: 1}, group.Client, []uint32{group.Handle}, true), sim.ErrNoGroup)
					must(t, p.Open(t.Context(), 0))
					if g.Off(1) {
						t.Error("a new context begins on")
					}
				}
			})
		})
	}
}

// The group is there before libcuda sets its slice: whoever sets one in between loses it.
func TestLibcudaSetsItsSliceLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGPU(t, sim.Options{Channels: sim.ChannelCost{Find: -1, Slice: -1}})
		p := g.Attach(1)
		defer p.Exit()
		opened := make(chan error)
		go func() { opened <- p.Open(t.Context(), 0) }()
		tenant := sim.Tenant{PID: 1}
		time.Sleep(100 * time.Millisecond)
		if list, err := g.Groups(t.Context(), tenant); len(list) != 0 || err != nil {
			t.Fatalf("groups %v, %v before they are scheduled", list, err)
		}
		time.Sleep(99*time.Millisecond + 10*time.Microsecond)
		group := one(t, g, 1)
		must(t, g.SetSlice(t.Context(), tenant, group.Client, group.Handle, time.Second))
		must(t, <-opened)
		d, err := g.Slice(t.Context(), tenant, group.Client, group.Handle)
		if err != nil || d != 2048*time.Microsecond {
			t.Errorf("slice %v, %v; want libcuda's", d, err)
		}
		must(t, g.SetSlice(t.Context(), tenant, group.Client, group.Handle, 1500*time.Nanosecond))
		must(t, p.Open(t.Context(), 0)) // again, which is nothing
		d, err = g.Slice(t.Context(), tenant, group.Client, group.Handle)
		if err != nil || d != time.Microsecond {
			t.Errorf("slice %v, %v; want ours in whole microseconds", d, err)
		}
		for _, d := range []time.Duration{0, 999, 101 * time.Second} {
			want(t, g.SetSlice(t.Context(), tenant, group.Client, group.Handle, d), sim.ErrInvalid)
		}
	})
}

func TestGroupsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGPU(t, sim.Options{Cards: make([]sim.Card, 2)})
		p := g.Attach(1)
		defer p.Exit()
		must(t, p.Open(t.Context(), 0))
		must(t, p.Open(t.Context(), 1))
		list, err := g.Groups(t.Context(), sim.Tenant{PID: 1})
		must(t, err)
		if len(list) != 2 || list[0].GPU == list[1].GPU || list[0].Handle == list[1].Handle {
			t.Fatalf("%+v, want a group on each card", list)
		}
		_, err = g.Groups(t.Context(), sim.Tenant{PID: 2})
		want(t, err, sim.ErrNoProcess)
		client := list[0].Client
		want(t, g.SwitchChannels(t.Context(), sim.Tenant{PID: 1}, client, []uint32{list[0].Handle, 7}, false), sim.ErrNoGroup)
		if g.Off(1) {
			t.Error("all or none")
		}
		want(t, g.SwitchChannels(t.Context(), sim.Tenant{PID: 1}, client+1, []uint32{list[0].Handle}, false), sim.ErrNoGroup)
		g.FailStep("switch", sim.ErrNotSupported)
		want(t, g.SwitchChannels(t.Context(), sim.Tenant{PID: 1}, client, []uint32{list[0].Handle}, false), sim.ErrNotSupported)
	})
}
