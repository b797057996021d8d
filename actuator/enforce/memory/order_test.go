package memory

import (
	"slices"
	"testing"
	"time"

	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/cudaprobe"
)

// What the device lists says how a process counts its GPUs.
func TestLearnOrder(t *testing.T) {
	type step struct {
		made, listed uint32 // bit sets
		want         order
	}
	late := shown{order: asGiven(4), late: true}
	if o, _ := late.learn(0b0010, 0b0001); !slices.Equal(o, asGiven(4)) {
		t.Errorf("it had a context before it was guarded: %v", o)
	}
	for _, tt := range []struct {
		name  string
		steps []step
	}{
		{"as given", []step{{0b0001, 0, order{0, 1, 2, 3}}, {0b0001, 0b0001, order{0, 1, 2, 3}}, {0b0011, 0b0011, order{0, 1, 2, 3}}}},
		{"one left out", []step{{0b0001, 0b0010, order{1, 0, 2, 3}}}},
		{"the last two", []step{{0b0001, 0b0100, order{2, 1, 0, 3}}, {0b0011, 0b0100, order{2, 1, 0, 3}}, {0b0011, 0b1100, order{2, 3, 0, 1}}}},
		{"the last two, seen at once", []step{{0b0011, 0b1100, order{2, 3, 0, 1}}}},
		{"turned round, seen one by one", []step{{0b0001, 0b0010, order{1, 0, 2, 3}}, {0b0011, 0b0011, order{1, 0, 2, 3}}}},
		{"the first left out, seen at once", []step{{0b0011, 0b0110, order{1, 2, 0, 3}}}},
		{"the first left out, seen one by one", []step{{0b0001, 0b0010, order{1, 0, 2, 3}}, {0b0011, 0b0110, order{1, 2, 0, 3}}, {0b0111, 0b1110, order{1, 2, 3, 0}}}},
		{"turned round, the second one listed before it was seen to be made", []step{{0b0001, 0b0010, order{1, 0, 2, 3}}, {0b0001, 0b0011, order{0, 1, 2, 3}}, {0b0011, 0b0011, order{1, 0, 2, 3}}}},
		{"what was shown later is right", []step{{0b0001, 0b0010, order{1, 0, 2, 3}}, {0b0001, 0b0100, order{2, 1, 0, 3}}}},
		{"a context that nobody saw being made", []step{{0b0010, 0b0001, order{1, 0, 2, 3}}, {0b0010, 0b0011, order{0, 1, 2, 3}}}},
		{"a context is destroyed", []step{{0b0001, 0b0100, order{2, 1, 0, 3}}, {0b0001, 0, order{2, 1, 0, 3}}}},
		{"an ordinal that it should not have", []step{{0b10000, 0b0001, order{0, 1, 2, 3}}}},
	} {
		known := shown{order: asGiven(4)}
		for i, s := range tt.steps {
			var o order
			if o, known = known.learn(s.made, s.listed); !slices.Equal(o, s.want) {
				t.Errorf("%s, %d: made %b, listed %b: %v; want %v", tt.name, i, s.made, s.listed, o, s.want)
			}
			if all := o.gpus(0b1111); all != 0b1111 || o.of(o.gpus(s.made&0b1111)) != s.made&0b1111 {
				t.Errorf("%s, %d: %v is not each GPU once", tt.name, i, o)
			}
		}
	}
}

// Beside a GPU that cannot be read nothing is learned while a context may be made.
func TestOrderIsUncertainBesideAnUnreadableGPU(t *testing.T) {
	p := &process{pid: 7, of: &container{Target: Target{GPUs: []string{"GPU-1", "GPU-2"}}}}
	running, held, another := cudaprobe.Call{PID: 7}, cudaprobe.Call{PID: 7, Held: true}, cudaprobe.Call{PID: 8}
	for _, tt := range []struct {
		name  string
		blind string
		calls []cudaprobe.Call
		want  bool
	}{
		{"all can be read", "GPU-3", []cudaprobe.Call{running}, false},
		{"one cannot", "GPU-2", []cudaprobe.Call{held, another, running}, true},
		{"one cannot, and no call runs", "GPU-2", []cudaprobe.Call{held, another}, false},
	} {
		g := &Guard{usage: map[string]task.Usage{}, blindedOn: map[string]time.Time{tt.blind: time.Now()}}
		if got := g.uncertain(p, tt.calls); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}
