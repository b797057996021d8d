package task

import (
	"encoding/json"
	"math"
	"strconv"
	"time"
)

// Seconds is a number of seconds (or, where a field says so, a ratio) that may
// be infinite or unknown. In JSON these are null, because JSON has no such numbers; a field
// beside it says why (float_reason, utilization_reason).
type Seconds float64

// SecondsOf converts a duration.
func SecondsOf(d time.Duration) Seconds { return Seconds(d.Seconds()) }

// Duration converts to a time.Duration, saturating at its limits. NaN is 0.
func (s Seconds) Duration() time.Duration {
	f := float64(s) * float64(time.Second)
	switch {
	case math.IsNaN(f):
		return 0
	case f >= math.MaxInt64:
		return math.MaxInt64
	case f <= math.MinInt64:
		return math.MinInt64
	default:
		return time.Duration(f)
	}
}

// MarshalJSON implements json.Marshaler.
func (s Seconds) MarshalJSON() ([]byte, error) {
	if f := float64(s); !math.IsNaN(f) && !math.IsInf(f, 0) {
		return strconv.AppendFloat(nil, f, 'f', -1, 64), nil
	}
	return []byte("null"), nil
}

// UnmarshalJSON implements json.Unmarshaler. Null is NaN: not known.
func (s *Seconds) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*s = Seconds(math.NaN())
		return nil
	}
	return json.Unmarshal(b, (*float64)(s))
}
