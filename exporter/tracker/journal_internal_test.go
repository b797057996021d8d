package tracker

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/exporter/tracker/core"
)

// slowStore takes its time to write.
type slowStore struct {
	Store
	takes  time.Duration
	writes atomic.Int64
}

func (s *slowStore) Save(core.Changes, time.Time) error {
	time.Sleep(s.takes)
	s.writes.Add(1)
	return nil
}

// A server ends a task a millisecond. The disk is not kept busy by that, and who waits for a
// write does not wait for the pause.
func TestJournalLeavesTheDiskToOthers(t *testing.T) {
	for _, takes := range []time.Duration{0, 2 * time.Millisecond, 50 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			store := &slowStore{takes: takes}
			j := newJournal(store, slog.New(slog.DiscardHandler))
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { defer close(ended); j.run(ctx) }()
			for range 10_000 {
				j.put(core.Changes{Ended: map[string]task.Task{"a": {}}}, nil)
				time.Sleep(time.Millisecond)
			}
			if n, most := store.writes.Load(), int64(10*time.Second/(journalPause+takes))+1; n == 0 || n > most {
				t.Errorf("a write takes %s: %d in 10 s, want at most %d", takes, n, most)
			}
			began, stored := time.Now(), make(chan error, 1)
			j.put(core.Changes{}, stored)
			if err := <-stored; err != nil || time.Since(began) > 2*takes {
				t.Errorf("a write takes %s: who waits for one waited for %s (%v)", takes, time.Since(began), err)
			}
			cancel()
			<-ended
		})
	}
}
