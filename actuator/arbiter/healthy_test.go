package arbiter

import (
	"testing"
	"time"
)

func TestHealthyWhileItSteps(t *testing.T) {
	stepped := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		last  *time.Time
		since time.Duration
		want  bool
	}{
		"before Run, and after it": {nil, time.Hour, true},
		"it steps":                 {&stepped, 0, true},
		"a slow step":              {&stepped, hangAfter, true},
		"a step that hangs":        {&stepped, hangAfter + time.Millisecond, false},
	} {
		a := &Arbiter{o: Options{Now: func() time.Time { return stepped.Add(tt.since) }}}
		a.stepped.Store(tt.last)
		if err := a.Healthy(); (err == nil) != tt.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
