package rm_test

import (
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/laxity/laxity/internal/rm"
)

const ms = time.Millisecond

func on(at time.Duration, pid int) rm.Switch { return rm.Switch{At: uint64(at), PID: pid, On: true} }
func off(at time.Duration, pid int) rm.Switch {
	return rm.Switch{At: uint64(at), PID: pid}
}

func TestPresence(t *testing.T) {
	type reading struct {
		switches []rm.Switch
		lost     bool
		want     map[int]time.Duration // nil: not known
	}
	known := reading{switches: []rm.Switch{on(0, 7)}} // at the end of the first second
	for name, readings := range map[string][]reading{
		"nothing is known before the first switch": {{}, {}},
		"who is alone stays on": {
			known, {want: map[int]time.Duration{7: time.Second}}, {want: map[int]time.Duration{7: time.Second}},
		},
		"two take turns, and switches belong to nobody": {
			{switches: []rm.Switch{on(1000*ms, 7)}}, // half a second is given
			{
				switches: []rm.Switch{off(1900*ms, 7), on(1950*ms, 8)},
				want:     map[int]time.Duration{7: 400 * ms, 8: 550 * ms},
			},
			{
				switches: []rm.Switch{off(2500*ms, 8), on(2600*ms, 7)},
				want:     map[int]time.Duration{8: 0, 7: 900 * ms},
			},
		},
		"after lost switches nothing is known, once": {
			known,
			{switches: []rm.Switch{on(1500*ms, 8)}, lost: true},
			{want: map[int]time.Duration{8: time.Second}},
		},
		"an end that is missing is the next one's start": {
			known,
			{switches: []rm.Switch{on(1000*ms, 8)}, want: map[int]time.Duration{7: 500 * ms, 8: 500 * ms}},
		},
		"a driver that hides whose contexts they are": {
			known, {switches: []rm.Switch{off(600*ms, 7), on(700*ms, 0)}}, {},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var p rm.Presence
			for i, r := range readings {
				got := p.Take(r.switches, r.lost, time.Second)
				if (got == nil) != (r.want == nil) || !maps.Equal(got, r.want) {
					t.Errorf("reading %d: %v, want %v", i, got, r.want)
				}
			}
		})
	}
}

// However contexts take turns and whenever they are read: what each gets is what it had, but for the
// first reading, which is not told.
func TestPresenceIsTheTruth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p rm.Presence
		offset := time.Duration(rapid.Int64Range(0, 1e15).Draw(t, "the GPU's clock")) // against ours
		now, next, pid, came := time.Duration(0), time.Duration(0), nobodyYet, time.Duration(0)
		truth, got := map[int]time.Duration{}, map[int]time.Duration{}
		unknown := time.Duration(0) // the time of readings that were not told
		for range rapid.IntRange(2, 30).Draw(t, "readings") {
			until := now + time.Duration(rapid.IntRange(1, 2000).Draw(t, "passed"))*ms
			var switches []rm.Switch
			for next < until {
				if pid != nobodyYet {
					truth[pid] += next - came
					switches = append(switches, off(offset+next, pid))
					next += time.Duration(rapid.IntRange(0, 500).Draw(t, "µs of a switch")) * time.Microsecond
				}
				pid, came = rapid.IntRange(1, 3).Draw(t, "pid"), next
				switches = append(switches, on(offset+next, pid))
				next += time.Duration(rapid.IntRange(1, 3000).Draw(t, "turn")) * ms
			}
			if n := len(switches); n > 0 { // a switch may end after the reading was due: it is read then
				until = max(until, time.Duration(switches[n-1].At)-offset)
			}
			parts := p.Take(switches, false, until-now)
			if parts == nil {
				unknown += until - now
			}
			for id, d := range parts {
				got[id] += d
			}
			now = until
		}
		truth[pid] += now - came
		for id, d := range truth {
			if off := (got[id] - d).Abs(); off > unknown {
				t.Fatalf("process %d had %v, not %v; %v were not told", id, d, got[id], unknown)
			}
		}
	})
}

const nobodyYet = -1
