package task

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"
)

// Seconds is a number of seconds (or, where a field says so, a ratio) that may
// be infinite or unknown. In JSON +Inf, -Inf and NaN are strings, as in
// Prometheus's API, because JSON has no such numbers.
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
	f := float64(s)
	switch {
	case math.IsNaN(f):
		return []byte(`"NaN"`), nil
	case math.IsInf(f, 1):
		return []byte(`"+Inf"`), nil
	case math.IsInf(f, -1):
		return []byte(`"-Inf"`), nil
	default:
		return strconv.AppendFloat(nil, f, 'f', -1, 64), nil
	}
}

// UnmarshalJSON implements json.Unmarshaler. It takes a number, or one of the
// strings that MarshalJSON writes.
func (s *Seconds) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		var text string
		if err := json.Unmarshal(b, &text); err != nil {
			return err
		}
		switch text {
		case "+Inf", "Inf":
			*s = Seconds(math.Inf(1))
		case "-Inf":
			*s = Seconds(math.Inf(-1))
		case "NaN":
			*s = Seconds(math.NaN())
		default:
			return fmt.Errorf("seconds: %q is neither a number nor +Inf, -Inf or NaN", text)
		}
		return nil
	}
	return json.Unmarshal(b, (*float64)(s))
}
