package stop

import (
	"flag"
	"testing"
	"time"
)

var wide = flag.Bool("wide", false, "explore worlds of millions of states, too")

// The three sizes of worlds: those of -short, those of every other run, those of -wide.
const (
	small = iota
	usual
	large
)

var worlds = []struct {
	size int
	world
}{
	{small, world{name: "one call, and marks and signals that fail", calls: [threads]uint8{1, 0}, deaths: true, late: true, opened: true, sendFails: true, writeFails: true, drops: true}},
	{small, world{name: "two calls", calls: [threads]uint8{2, 0}, deaths: true}},
	{small, world{name: "two threads, one of which slept", calls: [threads]uint8{1, 1}, sleeps: true}},
	{small, world{name: "one call, and SIGKILL", calls: [threads]uint8{1, 0}, late: true, kills: 1}},
	{small, world{name: "one call, and somebody else's signals", calls: [threads]uint8{1, 0}, late: true, stops: 1, conts: 1}},
	{usual, world{name: "two calls that are overdue", calls: [threads]uint8{2, 0}, late: true}},
	{usual, world{name: "two threads, and deaths", calls: [threads]uint8{1, 1}, deaths: true}},
	{usual, world{name: "one call, and SIGKILL and deaths", calls: [threads]uint8{1, 0}, deaths: true, late: true, kills: 1}},
	{usual, world{name: "one call, and somebody else's signals and deaths", calls: [threads]uint8{1, 0}, deaths: true, late: true, stops: 1, conts: 1}},
	{large, world{name: "one call, and SIGKILL, deaths and the guard opens", calls: [threads]uint8{1, 0}, deaths: true, late: true, opened: true, kills: 1}},
	{large, world{name: "two calls that are overdue, and deaths", calls: [threads]uint8{2, 0}, deaths: true, late: true}},
	{large, world{name: "two calls, and the guard opens", calls: [threads]uint8{2, 0}, late: true, opened: true}},
	{large, world{name: "two threads that are overdue", calls: [threads]uint8{1, 1}, late: true, drops: true}},
	{large, world{name: "two threads that are overdue, and deaths", calls: [threads]uint8{1, 1}, late: true, deaths: true}},
	{large, world{name: "two threads, and marks that fail", calls: [threads]uint8{1, 1}, late: true, writeFails: true, sendFails: true}},
	{large, world{name: "two threads, and the guard opens", calls: [threads]uint8{1, 1}, sleeps: true, opened: true}},
	{large, world{name: "two threads, and SIGKILL", calls: [threads]uint8{1, 1}, late: true, kills: 1}},
	{large, world{name: "two threads, and somebody else's signals", calls: [threads]uint8{1, 1}, deaths: true, stops: 1, conts: 1}},
	{large, world{name: "one call, and many signals of somebody else", calls: [threads]uint8{1, 0}, deaths: true, late: true, opened: true, stops: 2, conts: 2}},
}

// All rules are checked in every state that can be reached, and that the sweeper alone
// ends well from there.
func TestNobodyStandsForEver(t *testing.T) {
	size, states, began := usual, 0, time.Now()
	if testing.Short() {
		size = small
	} else if *wide {
		size = large
	}
	for _, w := range worlds {
		if w.size > size {
			continue
		}
		t.Run(w.name, func(t *testing.T) {
			e := explore(w.world, variant{}, "")
			states += e.states
			t.Log(e.states, "states")
			if e.finding != nil {
				t.Error(e.finding)
			}
		})
	}
	t.Logf("%d states in %.1f s", states, time.Since(began).Seconds())
}
