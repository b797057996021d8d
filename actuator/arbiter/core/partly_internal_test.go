package core

import (
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/estimate"
	"github.com/laxity/laxity/actuator/lease"
	"github.com/laxity/laxity/actuator/plan/ladder"
)

// A slice may be set on some of a process's channels, while its program may still set that of others. If it is not wanted
// any more at the next try, it is taken back all the same: by an inspection, or by a restore where the plan leaves the process out.
func TestSliceOfSomeChannelsIsTakenBack(t *testing.T) {
	const gpu = "GPU-0"
	for name, end := range map[string]func(k *Core, is *tenant){
		"by an inspection": func(k *Core, _ *tenant) { k.change(gpu, k.division.inspectAgain(gpu, k.now)) },
		"by a restore":     func(k *Core, _ *tenant) { k.change(gpu, k.division.putBack(gpu, ladder.Plan{}, k.now)) },
	} {
		t.Run(name, func(t *testing.T) {
			k := New(Options{Divides: true, Config: config.Config{}.WithDefaults(), Leases: lease.New(), History: estimate.New()}, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
			is := &tenant{gpu: gpu, container: "c", name: "c", process: Process{PID: 5, Start: 7}}
			k.division.tenants["5"] = is
			k.change(gpu, []wanted{{tenant: "5", kind: SetSlice, standing: ladder.Standing{Slice: 10 * time.Second}}})
			k.Effects()
			k.Divided(k.now, gpu, []ChangeResult{{Unsettled: true}})
			if !k.division.acts("c") || is.stands.Slice != 0 {
				t.Fatalf("stands %+v, acts %v: nothing would take the slice back", is.stands, k.division.acts("c"))
			}
			k.now = k.now.Add(time.Second)
			end(k, is)
			e := k.Effects()
			if len(e.Divide) != 1 || len(e.Divide[0].Changes) != 1 || e.Divide[0].Changes[0].Stands.Slice != 0 {
				t.Fatalf("%+v", e.Divide)
			}
			k.Divided(k.now, gpu, []ChangeResult{{}})
			if k.division.acts("c") {
				t.Errorf("%+v acts still", is)
			}
		})
	}
}
