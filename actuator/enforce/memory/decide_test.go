package memory_test

import (
	"math"
	"testing"

	"github.com/laxity/laxity/actuator/enforce/memory"
)

func TestLimit(t *testing.T) {
	for _, tt := range []struct {
		held, bytes, limit uint64
		want               memory.Verdict
	}{
		{0, 1, 1, memory.Grant},
		{0, 2, 1, memory.Deny},
		{5, 5, 10, memory.Grant},
		{5, 6, 10, memory.Deny},
		{10, 0, 10, memory.Grant},
		{11, 0, 10, memory.Deny},
		{1, math.MaxUint64, 10, memory.Deny},
		{math.MaxUint64, 1, 10, memory.Deny},
		{math.MaxUint64, 1, 0, memory.Grant}, // no limit
	} {
		r := memory.Request{Held: tt.held, Bytes: tt.bytes, Limit: tt.limit}
		a := memory.Limit{}.Decide(r)
		if a.Verdict != tt.want || a.Reason == "" {
			t.Errorf("%+v: %v (%s), want %v", tt, a.Verdict, a.Reason, tt.want)
		}
	}
	if c := (memory.Limit{}).Ceiling("a", "GPU-1", 7); c != 7 {
		t.Error(c)
	}
	if c := (memory.Limit{}).Ceiling("a", "GPU-1", 0); c != math.MaxUint64 {
		t.Error(c)
	}
}
