package run

import (
	"context"
	"io"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laxity/laxity/actuator/placement/api"
)

// renewed notes that a reservation is renewed.
type renewed struct {
	Placements
	at chan time.Time
}

func (r renewed) Check(context.Context, string) error {
	r.at <- time.Now()
	return nil
}

// A reservation is renewed well before it expires, while docker pulls the image.
func TestReservationIsRenewedInTime(t *testing.T) {
	made := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) // by the actuator's clock
	for name, tc := range map[string]struct {
		expires time.Time
		want    time.Duration
	}{
		"short":                   {made.Add(15 * time.Second), 5 * time.Second},
		"very short":              {made.Add(time.Second), time.Second},
		"the default":             {made.Add(2 * time.Minute), 20 * time.Second},
		"an answer without times": {time.Time{}, 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			cidFile := filepath.Join(t.TempDir(), "cid")
			synctest.Test(t, func(t *testing.T) {
				start, checks := time.Now(), renewed{at: make(chan time.Time)}
				f := &follower{runner: &Runner{Placements: checks, Stderr: io.Discard}, promise: api.Placement{ID: "p1", Made: made, Expires: tc.expires},
					cidFile: cidFile, done: make(chan struct{}), ended: make(chan struct{})}
				go f.follow(t.Context())
				for i := range 2 {
					if got, want := (<-checks.at).Sub(start), time.Duration(i+1)*tc.want; got != want {
						t.Errorf("renewed after %v, want %v", got, want)
					}
				}
				close(f.done)
				<-f.ended
			})
		})
	}
}
