package zoo

import (
	"testing"
	"time"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/exporter/device/sim"
	"github.com/laxity/laxity/exporter/device/sim/simtest"
	gpu "github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/needtest"
)

// Whoever is off the GPU for long without a reason is stuck; a slice that is given to a
// container that nobody may act on is a stray.
func TestWhoIsOffOrSlicedIsFound(t *testing.T) {
	s := simtest.Start(t, sim.Options{Cards: []sim.Card{{Speed: sim.H200().Scaled(512).Faster(100)}}})
	tenant := s.StartProcess(t, "--n", "512", "--repeat", "0")
	tenant.Await(t, "kernels_end")
	who := sim.Tenant{PID: tenant.PID}
	groups, err := s.Groups(t.Context(), who)
	if err != nil || len(groups) != 1 {
		t.Fatal(groups, err)
	}
	g, m := groups[0], &machine{gpu: &bench.GPU{Sim: s.GPU}}
	labelled := &specimen{machine: m, pid: tenant.PID, drawn: drawn{labels: map[string]string{gpu.LabelDeadline: "1s"}}}
	unlabelled := &specimen{machine: m, pid: tenant.PID, number: 1}
	look := func() (stuck, stray int) {
		w, now := newWatcher(nil, nil), time.Now()
		for at := now; at.Sub(now) < patience+2*tick; at = at.Add(tick) {
			w.lookAtChannels(labelled, tenant.PID, "1", at, false)
			w.lookAtChannels(unlabelled, tenant.PID, "1", at, false)
		}
		found, _, _ := w.found()
		for _, f := range found {
			if f.stray {
				stray++
			} else {
				stuck++
			}
		}
		return stuck, stray
	}
	expect := func(what string, stuck, stray, left int) {
		t.Helper()
		if a, b := look(); a != stuck || b != stray {
			t.Errorf("%s: %d stuck, %d stray; want %d and %d", what, a, b, stuck, stray)
		}
		t.Run(what, func(t *testing.T) {
			if _, err := groupOf(labelled); err != nil { // the tenant goes on to the end of the test
				needtest.Cgroup.Skip(t, err)
			}
			if found := changed([]*specimen{labelled, nil}); len(found) != left {
				t.Errorf("not its own: %q", found)
			}
		})
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	expect("as it began", 0, 0, 0)
	must(s.SwitchChannels(t.Context(), who, g.Client, []uint32{g.Handle}, false))
	expect("off", 1, 1, 1)
	must(s.SwitchChannels(t.Context(), who, g.Client, []uint32{g.Handle}, true))
	must(s.SetSlice(t.Context(), who, g.Client, g.Handle, 10*time.Second))
	expect("sliced", 0, 1, 1)
	must(s.SetSlice(t.Context(), who, g.Client, g.Handle, 2048*time.Microsecond))
	expect("its own again", 0, 0, 0)
}
