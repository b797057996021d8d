package watch_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/guardian/watch"
	"github.com/laxity/laxity/actuator/journal"
)

// A guardian that ends at once is told at once, and what it wrote stays when the next one is started.
func TestAGuardianThatFails(t *testing.T) {
	dir := t.TempDir()
	w := watch.New(watch.Options{
		Mode: watch.Spawn, StateDir: dir, Logger: slog.New(slog.DiscardHandler),
		Command: []string{"/bin/sh", "-c", "echo no engine; exit 3"},
	})
	log := filepath.Join(dir, "guardian.log")
	for i := 1; i <= 2; i++ {
		err := w.Start(t.Context())
		if err == nil || !strings.Contains(err.Error(), "ended as soon as it began") || !strings.Contains(err.Error(), log) {
			t.Errorf("it answers %v, which does not say that it ended, or does not name %s", err, log)
		}
		text, err := os.ReadFile(log)
		if n := strings.Count(string(text), "no engine"); err != nil || n != i {
			t.Errorf("after start %d the log says %q, %v", i, text, err)
		}
	}
}

// Without a guardian, and where none can be started, nothing is held: whatever is held when the actuator
// is killed would stay held.
func TestHoldsOnlyWhileItIsWatched(t *testing.T) {
	type check struct {
		after       string
		up, mayHold bool
	}
	for name, tt := range map[string]struct {
		o      watch.Options
		checks []check
	}{
		"spawn": {watch.Options{Mode: watch.Spawn}, []check{
			{"0s", true, true},
			{"1s", false, true}, // it is being replaced
			{"5.9s", false, true},
			{"6.9s", false, false},
			{"8s", false, false},
			{"9s", true, true},
			{"99s", false, true}, // the time counts from when it was found gone
			{"104s", false, false},
		}},
		"require": {watch.Options{Mode: watch.Require}, []check{{"0s", true, true}, {"1s", false, false}, {"2s", true, true}}},
		"warn":    {watch.Options{Mode: watch.Warn}, []check{{"0s", true, true}, {"1s", false, true}, {"100s", false, true}}},
		"off":     {watch.Options{Mode: watch.Spawn, Off: true}, []check{{"1s", false, true}, {"100s", false, true}}},
	} {
		t.Run(name, func(t *testing.T) {
			tt.o.StateDir, tt.o.Command, tt.o.Logger = t.TempDir(), []string{"/nonexistent"}, slog.New(slog.DiscardHandler)
			var guardian *journal.Lock
			set := func(up bool) {
				if guardian.Unlock(); up {
					var err error
					if guardian, err = journal.TryLock(journal.GuardianLock(tt.o.StateDir)); err != nil {
						t.Fatal(err)
					}
				}
			}
			defer set(false)
			set(true)
			w := watch.New(tt.o)
			if err := w.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, c := range tt.checks {
				after, err := time.ParseDuration(c.after)
				if err != nil {
					t.Fatal(err)
				}
				set(c.up)
				w.Check(time.Unix(0, 0).Add(after))
				if !tt.o.Off && w.Up() != c.up || w.MayHold() != c.mayHold {
					t.Errorf("after %s: up %v, may hold %v", c.after, w.Up(), w.MayHold())
				}
			}
		})
	}
}
