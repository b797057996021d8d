package core

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/estimate"
	"github.com/laxity/laxity/actuator/lease"
	"github.com/laxity/laxity/actuator/plan/ladder"
)

// A process whose channels are not found yet is tried again, and that is no failure, for a minute.
func TestNotFoundYetIsNoFailure(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	k := New(Options{Divides: true, Config: config.Config{}.WithDefaults(), Leases: lease.New(), History: estimate.New()}, began)
	is := &tenant{gpu: "GPU-0", container: "c", name: "c", process: Process{PID: 5, Start: 7}}
	k.division.tenants["5"] = is
	try := func(after time.Duration, r ChangeResult) []decision.Decision {
		k.now = began.Add(after)
		k.change("GPU-0", []wanted{{tenant: "5", kind: SetSlice}})
		k.Effects()
		k.Divided(k.now, "GPU-0", []ChangeResult{r})
		return k.Effects().Decisions
	}
	missing := ChangeResult{NoGroup: true, Err: errors.New("it has no channel group on a GPU yet")}
	for after := time.Duration(0); after < noChannels; after += time.Second {
		if d := try(after, missing); len(d) > 0 || is.retry.next.Sub(k.now) > againLate || is.left != justBegun {
			t.Fatalf("after %v: %+v, again in %v, %q", after, d, is.retry.next.Sub(k.now), is.left)
		}
	}
	d := try(noChannels, missing)
	if len(d) != 1 || d[0].Result != decision.Failed || d[0].Error == "" {
		t.Errorf("after %v: %+v", noChannels, d)
	}
	if d := try(noChannels+time.Second, missing); len(d) > 0 {
		t.Errorf("it is told twice: %+v", d)
	}
	if try(2*noChannels, ChangeResult{}); is.left != "" || !is.missing.IsZero() {
		t.Errorf("found, and %q", is.left)
	}
	if d := try(2*noChannels+time.Second, missing); len(d) > 0 {
		t.Errorf("a new context is no failure: %+v", d)
	}
}

// A search that finds no channels ends nothing that is in force: the process is restored, once.
func TestNotFoundAnyMoreIsRestored(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	missing := ChangeResult{NoGroup: true, Err: errors.New("it has no channel group on a GPU yet")}
	sliced := ladder.Standing{Slice: time.Millisecond}
	off := ladder.Standing{Off: true, Until: began.Add(time.Hour)}
	for name, tt := range map[string]struct {
		set  wanted
		gang bool
		of   string // of a gang: the GPU whose search finds nothing
	}{
		"a slice":                       {set: wanted{kind: SetSlice, standing: sliced}, of: "GPU-0"},
		"off":                           {set: wanted{kind: SwitchOff, standing: off}, of: "GPU-0"},
		"a slice of a gang":             {set: wanted{kind: SetSlice, standing: sliced}, gang: true, of: "GPU-0"},
		"a slice of a gang elsewhere":   {set: wanted{kind: SetSlice, standing: sliced}, gang: true, of: "GPU-1"},
		"a gang that is off":            {set: wanted{kind: SwitchOff, standing: off}, gang: true, of: "GPU-0"},
		"a gang that is off, elsewhere": {set: wanted{kind: SwitchOff, standing: off}, gang: true, of: "GPU-1"},
	} {
		t.Run(name, func(t *testing.T) {
			k := New(Options{Divides: true, Config: config.Config{}.WithDefaults(), Leases: lease.New(), History: estimate.New()}, began)
			v, ids := k.division, map[string]string{"GPU-0": "5", "GPU-1": "5"}
			v.tenants["5"] = &tenant{gpu: "GPU-0", container: "c", name: "c", process: Process{PID: 5, Start: 7}}
			if tt.gang {
				g := &gangOf{faces: map[string]*tenant{}, processes: map[string][]Process{"GPU-0": {{PID: 5, Start: 7}}, "GPU-1": {{PID: 6, Start: 8}}}}
				delete(v.tenants, "5")
				for gpu := range ids {
					ids[gpu] = faceID("c", gpu)
					g.face(v, named{"c", "c"}, gpu, began).bound = gpu == "GPU-1"
				}
			}
			answer := func(gpu string, w wanted, r ChangeResult) {
				w.tenant = ids[gpu]
				k.change(gpu, []wanted{w})
				k.Divided(k.now, gpu, []ChangeResult{r})
			}
			restores := func() (n int) { // without contention, for a while
				for range 20 {
					k.now = k.now.Add(againLate)
					for _, gpu := range []string{"GPU-0", "GPU-1"} {
						for _, w := range v.putBack(gpu, ladder.Plan{}, k.now) {
							answer(gpu, w, ChangeResult{})
							n++
						}
					}
				}
				return n
			}
			answer("GPU-0", tt.set, ChangeResult{})
			answer(tt.of, wanted{kind: InspectChannels}, missing)
			if list := v.inspectAgain(tt.of, k.now); list != nil {
				t.Errorf("it is looked for again at once: %+v", list)
			}
			if n := restores(); n != 1 || v.acts("c") {
				t.Errorf("%d times restored; still in force: %v", n, v.acts("c"))
			}
			answer(tt.of, wanted{kind: SetSlice, standing: sliced}, missing)
			if n := restores(); n != 0 {
				t.Errorf("nothing was in force, and it was restored %d times", n)
			}
		})
	}
}

// A change that finds no channels leaves what is in force, and is reported after a while. To put back what
// is in force each time would go round for ever: a gang may have channels on one GPU and none on another.
func TestChangeThatFindsNothingChangesNothing(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	k := New(Options{Divides: true, Config: config.Config{}.WithDefaults(), Leases: lease.New(), History: estimate.New()}, began)
	v := k.division
	p := &tenant{gpu: "GPU-0", container: "c", name: "c", process: Process{PID: 5, Start: 7}}
	v.tenants["5"] = p
	sliced := ladder.Standing{Slice: time.Millisecond}
	answer := func(w wanted, r ChangeResult) {
		w.tenant = "5"
		k.change("GPU-0", []wanted{w})
		k.Divided(k.now, "GPU-0", []ChangeResult{r})
	}
	answer(wanted{kind: SetSlice, standing: sliced}, ChangeResult{})
	for k.now.Sub(began) < noChannels+2*againLate {
		k.now = k.now.Add(againLate)
		answer(wanted{kind: SwitchOff, standing: ladder.Standing{Slice: time.Millisecond, Off: true, Until: began.Add(time.Hour)}}, ChangeResult{NoGroup: true, Err: errors.New("none")})
		if p.doubtful || p.stands != sliced {
			t.Fatalf("after %v: doubtful %v, %+v; want %+v", k.now.Sub(began), p.doubtful, p.stands, sliced)
		}
	}
	if !strings.Contains(p.left, "no channels of it were found") {
		t.Errorf("it says %q", p.left)
	}
}
