package tracker_test

import (
	"context"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/container/containertest"
	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/exporter/device/sim"
	"github.com/laxity/laxity/exporter/task"
)

// program launches kernels without a pause.
type program struct {
	name  string
	pid   int
	watts float64
	done  time.Duration // of kernels, with the GPU to themselves
}

const kernel = 20 * time.Millisecond

// run computes until ctx ends.
func (p *program) run(ctx context.Context, t *testing.T, gpu *sim.GPU) {
	tenant := gpu.Attach(p.pid)
	defer tenant.Detach()
	if err := tenant.Open(ctx, 0); err != nil {
		t.Error(err)
		return
	}
	if err := tenant.SetPower(0, p.watts); err != nil {
		t.Error(err)
		return
	}
	for ctx.Err() == nil {
		if _, err := tenant.LaunchFor(0, kernel); err != nil {
			t.Error(err)
			return
		}
		if err := tenant.Sync(context.Background(), 0, 0); err != nil {
			t.Error(err)
			return
		}
		p.done += kernel
	}
}

// Two programs of unequal power share the simulated GPU by time slices; first one of them is alone for some seconds.
// GPU-seconds agree within 5 % with the programs' own, energy within 10 %, and the sums with wall clock and counter.
func TestAccountOnTheSimulatedGPU(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gpu, err := sim.New(sim.Options{SwitchCost: -1})
		if err != nil {
			t.Fatal(err)
		}
		b := newBench(t)
		b.device = gpu.Device()
		if b.cards, err = b.device.(device.WithCards).Cards(); err != nil {
			t.Fatal(err)
		}
		heavy := &program{name: "heavy", pid: 101, watts: 550}
		light := &program{name: "light", pid: 102, watts: 180}
		both := []*program{heavy, light}
		for _, p := range both {
			b.host.start(p.pid, containertest.ID(p.name))
			b.engine.Put(container.Container{ID: containertest.ID(p.name), Name: p.name, Image: "img"})
		}
		b.start()
		time.Sleep(10 * time.Second) // idle
		began := time.Now()
		first := b.Snapshot().Cards[0]
		ctx, stop := context.WithCancel(t.Context())
		var work sync.WaitGroup
		work.Go(func() { heavy.run(ctx, t, gpu) })
		time.Sleep(6 * time.Second)
		work.Go(func() { light.run(ctx, t, gpu) })
		time.Sleep(60 * time.Second)
		stop()
		work.Wait()
		time.Sleep(3 * time.Second) // the last samples
		last := b.Snapshot().Cards[0]
		wall := time.Since(began).Seconds()
		b.stop()

		uses := map[string]task.Use{}
		seconds, energy := *last.OtherSeconds, 0.0
		for _, u := range last.Uses {
			uses[u.Container] = u
			seconds += u.GPUSeconds
			energy += *u.Energy
		}
		for _, p := range both {
			u := uses[p.name]
			off := u.GPUSeconds/p.done.Seconds() - 1
			joules := p.watts * p.done.Seconds()
			t.Logf("%s: %.2f GPU-seconds, by its own count %.2f (%+.1f %%); %.0f J, truly %.0f (%+.1f %%)",
				p.name, u.GPUSeconds, p.done.Seconds(), 100*off, *u.Energy, joules, 100*(*u.Energy/joules-1))
			if math.Abs(off) > 0.05 {
				t.Errorf("%s: %.2f GPU-seconds, by its own count %.2f", p.name, u.GPUSeconds, p.done.Seconds())
			}
			if math.Abs(*u.Energy/joules-1) > 0.10 {
				t.Errorf("%s: %.0f J, truly %.0f", p.name, *u.Energy, joules)
			}
		}
		if seconds > wall {
			t.Errorf("%.2f GPU-seconds in %.2f s", seconds, wall)
		}
		for _, reason := range []string{"idle", "other", "unknown"} {
			energy += last.Unattributed[reason] - first.Unattributed[reason]
		}
		if grown := *last.Energy - *first.Energy; math.Abs(energy-grown) > 1e-6*grown {
			t.Errorf("%.3f J given out, the counter grew by %.3f", energy, grown)
		}
		if idle := last.Unattributed["idle"] - first.Unattributed["idle"]; math.Abs(idle/(75*wall)-1) > 0.05 {
			t.Errorf("idle: %.0f J, want %.0f", idle, 75*wall)
		}
	})
}
