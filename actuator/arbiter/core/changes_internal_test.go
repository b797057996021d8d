package core

import (
	"errors"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/estimate"
	"github.com/laxity/laxity/actuator/lease"
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
