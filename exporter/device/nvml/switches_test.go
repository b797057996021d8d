//go:build linux && cgo

package nvml

import (
	"errors"
	"fmt"
	"maps"
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
	if f := r.traces[uuid]; f.on || f.starts != 1 {
		t.Errorf("after the reading it is on: %v; %d times", f.on, f.starts)
	}
	if c := r.first(t); c.Present != nil || c.Switches.Rate != 0 {
		t.Errorf("nothing has switched: present %v, switches %v", c.Present, c.Switches)
	}
	// A driver that hides whose contexts they are: the samples are all that is known.
	r.traces[uuid].list = []rm.Switch{{At: 6000 * ms, PID: 41}, {At: 6000 * ms, On: true}}
	if c := r.first(t); c.Present != nil || c.Switches != nil {
		t.Errorf("hidden: present %v, switches %v", c.Present, c.Switches)
	}
	if c := r.first(t); c.Switches == nil {
		t.Error("after a hidden window the trace is given up")
	}
	// The driver recorded for longer than the window: it had its locks wait. Shares are of that time.
	r.traces[uuid].list = []rm.Switch{{At: 5000 * ms, PID: 41}, {At: 5000 * ms, PID: 42, On: true}, {At: 5100 * ms, PID: 42}, {At: 5100 * ms, PID: 41, On: true}, {At: 5200 * ms, PID: 41}}
	if c := r.first(t); !maps.Equal(c.Present, map[int]float64{41: 0.5, 42: 0.5}) || c.Switches.Rate != 10 {
		t.Errorf("a longer window: present %v, switches %v", c.Present, c.Switches)
	}
	// We stood still: what the ring has may not be all.
	r.stall = time.Second
	r.traces[uuid].list = []rm.Switch{{At: 5000 * ms, PID: 41}, {At: 5001 * ms, PID: 42, On: true}}
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
