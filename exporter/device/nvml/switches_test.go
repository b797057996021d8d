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

func TestCardTellsWhoseContextWasOnIt(t *testing.T) {
	r := newCardRig(t, nil)
	uuid := r.gpu.UUIDs()[0]
	if c := r.first(t); c.Present != nil || c.Switches == nil || *c.Switches != 0 {
		t.Errorf("before the first switch: present %v, switches %v", c.Present, c.Switches)
	}
	second := uint64(time.Second)
	r.traces[uuid].list = []rm.Switch{{At: 5 * second, PID: 41, On: true}}
	r.now = r.now.Add(time.Second)
	if c := r.first(t); c.Present != nil || *c.Switches != 1 {
		t.Errorf("the first: present %v, switches %v", c.Present, *c.Switches)
	}
	r.traces[uuid].list = []rm.Switch{{At: 6 * second, PID: 41}, {At: 6 * second, PID: 42, On: true}}
	r.now = r.now.Add(time.Second)
	if c := r.first(t); !maps.Equal(c.Present, map[int]float64{41: 0.5, 42: 0.5}) || *c.Switches != 2 {
		t.Errorf("present %v, switches %v", c.Present, *c.Switches)
	}
	// A trace that breaks is opened again, a minute later; the count goes on.
	broken := r.traces[uuid]
	broken.err = errors.New("the driver is gone")
	for _, step := range []struct {
		after time.Duration
		open  bool
	}{{time.Second, false}, {59 * time.Second, false}, {time.Second, true}} {
		r.now = r.now.Add(step.after)
		if c := r.first(t); c.Present != nil || *c.Switches != 2 {
			t.Errorf("after %v: present %v, switches %v", step.after, c.Present, *c.Switches)
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
