package task

import (
	"encoding/json"
	"math"
	"strconv"
	"time"
)

// Seconds is a number of seconds that may be infinite or unknown. In JSON these are null, because JSON
// has no such numbers; a field beside it says why (float_reason).
type Seconds float64

// Ratio is a part of a whole, 0 to 1, that may be unknown; in JSON as Seconds (utilization_reason).
type Ratio float64

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
func (s Seconds) MarshalJSON() ([]byte, error) { return number(s), nil }

// UnmarshalJSON implements json.Unmarshaler. Null is NaN: not known.
func (s *Seconds) UnmarshalJSON(b []byte) error { return setNumber((*float64)(s), b) }

// MarshalJSON implements json.Marshaler.
func (r Ratio) MarshalJSON() ([]byte, error) { return number(r), nil }

// UnmarshalJSON implements json.Unmarshaler. Null is NaN: not known.
func (r *Ratio) UnmarshalJSON(b []byte) error { return setNumber((*float64)(r), b) }

func number[N ~float64](n N) []byte {
	if !known(n) {
		return []byte("null")
	}
	return strconv.AppendFloat(nil, float64(n), 'f', -1, 64)
}

func setNumber(f *float64, b []byte) error {
	if string(b) == "null" {
		*f = math.NaN()
		return nil
	}
	return json.Unmarshal(b, f)
}

// ReasonOf says why a number is not known or has no bound; "" where it is a number.
func ReasonOf[N Seconds | Ratio](n N, why string) string {
	if known(n) {
		return ""
	}
	return why
}

func known[N ~float64](n N) bool { return !math.IsNaN(float64(n)) && !math.IsInf(float64(n), 0) }
