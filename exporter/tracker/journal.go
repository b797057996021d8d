package tracker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/laxity/laxity/exporter/tracker/core"
)

const (
	// journalPause is between two writes, unless somebody waits for one: a server that ends a task
	// with each request must not keep a disk busy that others need too. What is lost with the
	// machine, or by kill -9, is the last journalPause.
	journalPause = 200 * time.Millisecond
	// aliveEvery is how often the store notes that the exporter runs. It bounds the error of
	// ends that nobody saw.
	aliveEvery = 10 * time.Second
	// retryWrite is the pause after a failed write.
	retryWrite = time.Second
)

// journal writes changes to the store in a goroutine of its own. A slow disk delays what is
// stored, never what is seen.
type journal struct {
	store Store
	log   *slog.Logger
	wake  chan struct{}
	hurry chan struct{} // somebody waits for the write

	mu      sync.Mutex
	pending core.Changes
	waiters []chan<- error
	open    bool // there are unfinished tasks
	failing bool
}

func newJournal(store Store, log *slog.Logger) *journal {
	return &journal{store: store, log: log, wake: make(chan struct{}, 1), hurry: make(chan struct{}, 1)}
}

// put adds changes. If stored is not nil, it gets the result of the write.
func (j *journal) put(c core.Changes, stored chan<- error) {
	if j.store == nil {
		if stored != nil {
			stored <- nil
		}
		return
	}
	j.mu.Lock()
	j.pending.Merge(c)
	if stored != nil {
		j.waiters = append(j.waiters, stored)
	}
	j.mu.Unlock()
	select {
	case j.wake <- struct{}{}:
	default:
	}
	if stored == nil {
		return
	}
	select {
	case j.hurry <- struct{}{}:
	default:
	}
}

// unfinished notes whether there are tasks whose end the exporter could miss.
func (j *journal) unfinished(open bool) {
	j.mu.Lock()
	j.open = open
	j.mu.Unlock()
}

// run writes until ctx ends, and then writes what is left.
func (j *journal) run(ctx context.Context) {
	if j.store == nil {
		return
	}
	beat := time.NewTicker(aliveEvery)
	defer beat.Stop()
	for {
		var pause time.Duration
		select {
		case <-ctx.Done():
			j.write(true)
			return
		case <-beat.C:
			pause = j.write(true)
		case <-j.wake:
			pause = j.write(false)
		}
		select {
		case <-time.After(pause):
		case <-j.hurry:
		case <-ctx.Done():
		}
	}
}

// write writes what is pending. beat: it writes also that the exporter lives, if an end could be missed.
// It returns how long to wait before the next write.
func (j *journal) write(beat bool) time.Duration {
	j.mu.Lock()
	changes, waiters, open := j.pending, j.waiters, j.open
	j.pending, j.waiters = core.Changes{}, nil
	j.mu.Unlock()
	if changes.Empty() && len(waiters) == 0 && (!beat || !open) {
		return journalPause
	}
	began := time.Now()
	err := j.store.Save(changes, began)
	for _, w := range waiters {
		w <- err
	}
	if err == nil {
		if j.failing {
			j.log.Info("the state is written again")
		}
		j.failing = false
		return journalPause
	}
	if !j.failing {
		j.log.Error("the state cannot be written: after a restart its tasks and deadlines would be unknown", "err", err)
	}
	j.failing = true
	j.mu.Lock()
	changes.Merge(j.pending)
	j.pending = changes
	j.mu.Unlock()
	select {
	case j.wake <- struct{}{}:
	default:
	}
	return retryWrite
}
