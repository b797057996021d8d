package arbiter

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/laxity/laxity/actuator/arbiter/core"
	"github.com/laxity/laxity/actuator/enforce/enforcetest"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/exporter/task"
)

// After a pause that failed the container may be paused, though its record cannot be read: it is
// inspected, and not left to itself.
func TestUnreadableRecordCountsAsOne(t *testing.T) {
	for name, tt := range map[string]struct {
		record func(a *Arbiter) error
		want   bool
	}{
		"none":     {func(*Arbiter) error { return nil }, false},
		"readable": {func(a *Arbiter) error { return a.o.Journal.Put(enforcetest.HoldOf("a")) }, true},
		"damaged": {func(a *Arbiter) error {
			err := a.o.Journal.Put(enforcetest.HoldOf("a"))
			records, gerr := filepath.Glob(filepath.Join(a.o.StateDir, "*", "a.*"))
			if err = errors.Join(err, gerr); err != nil || len(records) != 1 {
				return fmt.Errorf("records of a: %q, %w", records, err)
			}
			return os.WriteFile(records[0], []byte("{"), 0o600)
		}, true},
	} {
		for _, kind := range []plan.Kind{plan.Pause, core.Inspect} {
			t.Run(string(kind)+", "+name, func(t *testing.T) {
				a := newArbiter(t, engine{}, nil)
				a.snapshot.Store(&task.Snapshot{})
				if err := tt.record(a); err != nil {
					t.Fatal(err)
				}
				// It is overtaken: its task has ended.
				r := core.Result{Action: core.Action{Action: plan.Action{Kind: kind, ContainerID: "a", Container: "a", Tasks: []string{"ended"}}}}
				if kind == plan.Pause {
					a.enforce(t.Context(), &r)
				} else {
					r.OnRecord = a.mayBeOnRecord("a")
				}
				if r.OnRecord != tt.want {
					t.Errorf("on record: %v (%v)", r.OnRecord, r.Err)
				}
			})
		}
	}
}
