//go:build linux && cgo

package nvml

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"testing"
	"time"

	"github.com/laxity/laxity/internal/rm"
)

// use gives the first card a context of a process.
func (r *cardRig) use(t *testing.T, pid int) {
	t.Helper()
	if err := r.gpu.Attach(pid).Open(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
}

func TestCardTellsWhoseContextWasOnIt(t *testing.T) {
	r := newCardRig(t, nil)
	uuid := r.gpu.UUIDs()[0]
	if c := r.first(t); c.Present != nil || c.Switches == nil || c.Switches.Rate != 0 || r.traces[uuid].starts != 0 {
		t.Errorf("a card with one process: present %v, switches %v, traced %d times", c.Present, c.Switches, r.traces[uuid].starts)
	}
	r.use(t, 42)
	ms := uint64(time.Millisecond)
	r.traces[uuid].list = []rm.Switch{{At: 5000 * ms, PID: 41, On: true}, {At: 5025 * ms, PID: 41}, {At: 5050 * ms, PID: 42, On: true}, {At: 5100 * ms, PID: 42}}
	if c := r.first(t); !maps.Equal(c.Present, map[int]float64{41: 0.25, 42: 0.5}) || c.Switches.Rate != 20 || !maps.Equal(c.Switches.Of, map[int]float64{41: 10, 42: 10}) {
		t.Errorf("present %v, switches %v", c.Present, c.Switches)
	}
	if f := r.traces[uuid]; !f.on || f.starts != 2 {
		t.Errorf("few switch, and it is on: %v; %d times", f.on, f.starts)
	}
	r.now = r.now.Add(900 * time.Millisecond)
	if c := r.first(t); c.Present != nil || c.Switches.Rate != 0 || c.Switches.Seconds != 0.9 {
		t.Errorf("nothing has switched: present %v, switches %v", c.Present, c.Switches)
	}
	// A driver that hides whose contexts they are: the samples are all that is known.
	r.traces[uuid].list = []rm.Switch{{At: 6000 * ms, PID: 41}, {At: 6000 * ms, On: true}}
	r.traces[uuid].next = r.traces[uuid].list
	if c := r.first(t); c.Present != nil || c.Switches != nil {
		t.Errorf("hidden: present %v, switches %v", c.Present, c.Switches)
	}
	if c := r.first(t); c.Switches == nil {
		t.Error("after a hidden window the trace is given up")
	}
	// The driver recorded for longer than the window: it had its locks wait. Shares are of that time.
	r.traces[uuid].list = []rm.Switch{{At: 5000 * ms, PID: 41}, {At: 5000 * ms, PID: 42, On: true}, {At: 5100 * ms, PID: 42}, {At: 5100 * ms, PID: 41, On: true}, {At: 5200 * ms, PID: 41}}
	r.now = r.now.Add(100 * time.Millisecond)
	if c := r.first(t); !maps.Equal(c.Present, map[int]float64{41: 0.5, 42: 0.5}) || c.Switches.Rate != 10 {
		t.Errorf("a longer window: present %v, switches %v", c.Present, c.Switches)
	}
	// We stood still: what the ring has may not be all.
	r.stall = 2 * time.Second
	r.now = r.now.Add(r.stall)
	r.traces[uuid].list = []rm.Switch{{At: 5000 * ms, PID: 41}, {At: 5001 * ms, PID: 42, On: true}}
	r.traces[uuid].next = r.traces[uuid].list
	if c := r.first(t); c.Present != nil || c.Switches != nil {
		t.Errorf("after a stall: present %v, switches %v", c.Present, c.Switches)
	}
	r.stall = 0
	// A trace that breaks is opened again, a minute later.
	broken := r.traces[uuid]
	broken.err = errors.New("the driver is gone")
	r.first(t)
	for _, step := range []struct {
		after time.Duration
		open  bool
	}{{time.Second, false}, {58 * time.Second, false}, {time.Second, true}} {
		r.now = r.now.Add(step.after)
		if c := r.first(t); c.Present != nil || (c.Switches != nil) != step.open {
			t.Errorf("after %v: present %v, switches %v", step.after, c.Present, c.Switches)
		}
		if !broken.closed || (r.traces[uuid] != broken) != step.open {
			t.Errorf("after %v: closed %v, opened again %v", step.after, broken.closed, r.traces[uuid] != broken)
		}
	}
}

func TestTraceGoesWithTheDriver(t *testing.T) {
	r := newCardRig(t, nil)
	r.first(t)
	old := maps.Clone(r.traces)
	r.gpu.UnloadDriver()
	if _, err := r.Read(t.Context()); err == nil {
		t.Fatal("read without a driver")
	}
	for uuid, f := range old {
		if !f.closed {
			t.Errorf("the trace of %s keeps the driver", uuid)
		}
	}
	r.gpu.LoadDriver("")
	r.first(t)
	for uuid, f := range r.traces {
		if f == old[uuid] || f.closed {
			t.Errorf("no trace of %s after the driver came back", uuid)
		}
	}
	r.Close()
	for uuid, f := range r.traces {
		if !f.closed {
			t.Errorf("Close left the trace of %s open", uuid)
		}
	}
}

func TestCardWithoutATrace(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int // how often two cards were asked in two minutes
	}{{fmt.Errorf("driver 610: %w", rm.ErrUnsupported), 2}, {errors.New("no permission"), 6}} {
		r := newCardRig(t, nil)
		r.refused = c.err
		for range 121 {
			if card := r.first(t); card.Present != nil || card.Switches != nil || card.SM == nil {
				t.Fatalf("%v: present %v, switches %v, samples %v", c.err, card.Present, card.Switches, card.SM)
			}
			r.now = r.now.Add(time.Second)
		}
		if r.opened != c.want {
			t.Errorf("%v: asked %d times, want %d", c.err, r.opened, c.want)
		}
	}
}

// Where few switch, all of the time is read; where many do, a tenth of each second. A window in the middle of
// which somebody came is followed by a brief one.
func TestWindowsAreAsLongAsFewSwitch(t *testing.T) {
	r := newCardRig(t, nil)
	r.use(t, 42)
	trace := func() *fakeTrace { return r.traces[r.gpu.UUIDs()[0]] }
	turns := func(n int) (list []rm.Switch) { // contexts that come onto the card
		for i := range n {
			list = append(list, rm.Switch{At: uint64(i), PID: 41 + i%2, On: true}, rm.Switch{At: uint64(i), PID: 41 + i%2})
		}
		return list
	}
	r.first(t)
	for i, step := range []struct {
		since, brief  int // that come in the window since the reading before, and in a brief one
		seconds, rate float64
		on            bool // afterwards
	}{
		{50, 0, 1, 50, true},
		{90, 0, 1, 90, true},
		{149, 0, 1, 149, true},
		{150, 16, 0.1, 160, false},
		{0, 40, 0.1, 400, false},
		{0, 3, 0.1, 30, true},
		{99, 0, 1, 99, true},
		{20, 0, 1, 20, true},
		{100, 9, 0.1, 90, true}, // far more than before
		{100, 0, 1, 100, true},
	} {
		if trace().list, trace().next = turns(step.since), turns(step.brief); !trace().on {
			trace().list = trace().next
		}
		r.now = r.now.Add(time.Second)
		c := r.first(t)
		if c.Switches == nil || math.Abs(c.Switches.Seconds-step.seconds) > 1e-9 || math.Abs(c.Switches.Rate-step.rate) > 1e-6 || trace().on != step.on {
			t.Errorf("step %d: %+v, on %v; want %+v", i, c.Switches, trace().on, step)
		}
	}
	r.gpu.Attach(42).Exit()
	r.now = r.now.Add(time.Second)
	if c := r.first(t); trace().on || c.Switches == nil || c.Switches.Rate != 0 {
		t.Errorf("with one process it is on: %v; %+v", trace().on, c.Switches)
	}
}
