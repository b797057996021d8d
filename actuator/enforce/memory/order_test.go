package memory

import (
	"slices"
	"testing"
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
