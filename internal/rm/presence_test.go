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
	for name, c := range map[string]struct {
		switches []rm.Switch
		want     map[int]time.Duration // of 100 ms; nil: not known
	}{
		"nothing is known without a switch": {nil, nil},
		"who leaves was there before, who comes stays": {
			[]rm.Switch{off(1000*ms, 7), on(1010*ms, 8)}, map[int]time.Duration{7: 45 * ms, 8: 45 * ms},
		},
		"two take turns, and switches belong to nobody": {
			[]rm.Switch{on(1000*ms, 7), off(1030*ms, 7), on(1040*ms, 8), off(1090*ms, 8)}, map[int]time.Duration{7: 30 * ms, 8: 55 * ms},
		},
		"whose end is missing was there before": {
			[]rm.Switch{on(1000*ms, 7), off(1004*ms, 7), on(1004*ms, 8)}, map[int]time.Duration{7: 4 * ms, 8: 96 * ms},
		},
		"a visitor that came in between was not": {
			[]rm.Switch{on(1000*ms, 7), off(1002*ms, 7), on(1002*ms, 8), off(1004*ms, 8), on(1004*ms, 9)},
			map[int]time.Duration{7: 2 * ms, 8: 2 * ms, 9: 96 * ms},
		},
		"whose end is missing, among several": {
			[]rm.Switch{on(1000*ms, 7), off(1010*ms, 7), on(1010*ms, 8), off(1020*ms, 8), on(1020*ms, 9), on(1060*ms, 7), off(1080*ms, 7)},
			map[int]time.Duration{7: 30 * ms, 8: 10 * ms, 9: 50 * ms},
		},
		"nobody knows which of several": {
			[]rm.Switch{on(1000*ms, 7), off(1010*ms, 7), on(1010*ms, 8), off(1020*ms, 8), on(1020*ms, 9), off(1060*ms, 9)},
			map[int]time.Duration{7: 10 * ms, 8: 10 * ms, 9: 40 * ms},
		},
		"nobody else came": {[]rm.Switch{on(1000*ms, 7), off(1040*ms, 7)}, map[int]time.Duration{7: 40 * ms}},
		"a window that seems shorter than what came in it": {
			[]rm.Switch{on(1000*ms, 7), off(1101*ms, 7), on(1102*ms, 8)}, map[int]time.Duration{7: 101 * ms, 8: 0},
		},
		"a context that has used its slice is saved, which is nobody's time": {
			[]rm.Switch{on(0, 7), off(2168*time.Microsecond, 7), on(2248*time.Microsecond, 8), off(5*ms, 8)},
			map[int]time.Duration{7: 2048 * time.Microsecond, 8: 50252 * time.Microsecond},
		},
		"an end that is missing is the next one's start": {
			[]rm.Switch{on(1000*ms, 7), on(1040*ms, 8), off(1100*ms, 8)}, map[int]time.Duration{7: 40 * ms, 8: 60 * ms},
		},
		"a driver that hides whose contexts they are": {[]rm.Switch{off(0, 7), on(10*ms, 0), off(100*ms, 0)}, nil},
		"an end that the driver does not name":        {[]rm.Switch{off(0, 0), on(10*ms, 7), off(100*ms, 7)}, map[int]time.Duration{7: 90 * ms}},
	} {
		t.Run(name, func(t *testing.T) {
			got := rm.Presence(c.switches, 100*ms)
			if (got == nil) != (c.want == nil) || !maps.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

// However contexts take turns: what each gets is what it had, but for the edges of the window and for saving.
func TestPresenceIsTheTruth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		window := time.Duration(rapid.IntRange(10, 200).Draw(t, "window")) * ms
		at := time.Duration(rapid.Int64Range(0, 1e15).Draw(t, "the GPU's clock"))
		begin, end := at, at+window
		truth, edges := map[int]time.Duration{}, time.Duration(0)
		var switches []rm.Switch
		for at < end {
			pid, d := rapid.IntRange(1, 3).Draw(t, "pid"), time.Duration(rapid.IntRange(1, 30000).Draw(t, "µs"))*time.Microsecond
			if at > begin {
				switches = append(switches, on(at, pid))
			} else {
				edges += d
			}
			truth[pid] += min(d, end-at)
			if at += d; at < end {
				switches = append(switches, off(at, pid))
				at += time.Duration(rapid.IntRange(0, 100).Draw(t, "µs of a switch")) * time.Microsecond
			} else {
				edges += d
			}
		}
		got := rm.Presence(switches, window)
		if (got == nil) != (len(switches) == 0) {
			t.Fatalf("%v from %d switches", got, len(switches))
		}
		for id, d := range truth {
			if off := (got[id] - d).Abs(); got != nil && off > edges+time.Duration(len(switches))*400*time.Microsecond {
				t.Fatalf("process %d had %v, not %v", id, d, got[id])
			}
		}
	})
}
