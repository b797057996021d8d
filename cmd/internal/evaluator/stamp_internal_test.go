package evaluator

import (
	"testing"
	"time"
)

func TestStamp(t *testing.T) {
	at := time.UnixMilli
	for name, tc := range map[string]struct {
		last   int64
		passed time.Duration
		now    time.Time
		want   int64
	}{
		"the first":                    {0, 1 << 62, at(5000), 5000},
		"later":                        {5000, 100 * time.Millisecond, at(5100), 5100},
		"at the same millisecond":      {5000, 100 * time.Microsecond, at(5000), 5001},
		"the clock was set forward":    {5000, 100 * time.Millisecond, at(9000), 9000},
		"the clock was set back":       {5000, 100 * time.Millisecond, at(1100), 5100},
		"set back, no monotonic clock": {5000, -4 * time.Second, at(1000), 5001},
	} {
		if got := stamp(tc.last, tc.passed, tc.now); got.UnixMilli() != tc.want {
			t.Errorf("%s: %d, want %d", name, got.UnixMilli(), tc.want)
		}
	}
}
