package devicetest

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/exporter/device/sim"
)

// Shapes are the machines on which adapters of the simulated GPU are tested.
func Shapes() map[string]sim.Options {
	return map[string]sim.Options{
		"one card":  {},
		"two cards": {Cards: make([]sim.Card, 2)},
		"MIG beside a whole card": {Cards: []sim.Card{
			{Instances: make([]sim.Instance, 3)}, {}, {Instances: make([]sim.Instance, 2)},
		}},
	}
}

// SimRig is a rig for d, which reads gpu.
func SimRig(gpu *sim.GPU, d device.Device) Rig {
	var pids atomic.Int64
	pids.Store(1 << 22) // above what Linux gives out
	occupy := func(mps bool) func(*testing.T, uint64, ...string) (int, func()) {
		return func(t *testing.T, bytes uint64, uuids ...string) (int, func()) {
			t.Helper()
			pid := int(pids.Add(1))
			p := gpu.Attach(pid)
			if mps {
				p.UseMPS()
			}
			for _, uuid := range uuids {
				i := slices.Index(gpu.UUIDs(), uuid)
				if err := p.Open(context.Background(), i); err != nil {
					t.Fatal(err)
				}
				if _, err := p.Alloc(i, bytes); err != nil {
					t.Fatal(err)
				}
			}
			return pid, p.Detach
		}
	}
	return Rig{
		Device: d,
		Occupy: occupy(false),
		Serve: func(t *testing.T, bytes uint64, uuid string) (int, func()) {
			t.Helper()
			return occupy(true)(t, bytes, uuid)
		},
		Fail: func(t *testing.T, uuid string) func() {
			must(t, gpu.FailProcessQuery(uuid, errors.New("process list failed by the test")))
			return func() { must(t, gpu.FailProcessQuery(uuid, nil)) }
		},
		Lose: func(t *testing.T, uuid string) func() {
			must(t, gpu.Lose(uuid))
			return func() { must(t, gpu.Recover(uuid)) }
		},
		Unload: func(*testing.T) func() {
			gpu.UnloadDriver()
			return func() { gpu.LoadDriver("") }
		},
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
