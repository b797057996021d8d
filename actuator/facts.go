package actuator

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/laxity/laxity/exporter/task"
)

// watch passes the stream of snapshots on, and opens it again when it ends.
func (l *loop) watch(ctx context.Context) <-chan *task.Snapshot {
	out := make(chan *task.Snapshot)
	go func() {
		for ctx.Err() == nil {
			in, err := l.o.Source.Watch(ctx)
			for err == nil {
				s, ok := <-in
				if !ok {
					break
				}
				select {
				case out <- s:
				case <-ctx.Done():
					return
				}
			}
			select { // a source that ends at once must not make us spin
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
	return out
}

// formerFor is for how long a snapshot of a run of the exporter that has ended may come late.
const formerFor = 10 * time.Second

// formerRun is the exporter's run before the present one.
type formerRun struct {
	name string
	left time.Time // when the first snapshot of the next one came
}

// older reports whether s was made before the present snapshot. What the wall clocks of
// exporter and actuator say does not matter.
func (l *loop) older(s *task.Snapshot, now time.Time) bool {
	switch {
	case l.snap == nil:
		return false
	case s.Run != l.snap.Run:
		return s.Run == l.former.name && now.Sub(l.former.left) < formerFor
	case s.Sequence != l.snap.Sequence:
		return s.Sequence < l.snap.Sequence
	default: // the same facts, confirmed earlier
		return s.Time.Before(l.snap.Time)
	}
}

// ours returns the snapshot with all times by our own clock, the monotonic one included.
func ours(s *task.Snapshot, now time.Time) *task.Snapshot {
	own := s.At(now)
	if own.Age = s.Age; !s.Time.IsZero() {
		own.Time = now.Add(-s.Age.Duration())
	}
	return own
}

// take makes s the present snapshot unless it is older than that.
func (l *loop) take(s *task.Snapshot) {
	if s == nil {
		return
	}
	now := l.o.Now()
	if s = ours(s, now); l.older(s, now) {
		return
	}
	if l.snap != nil && s.Run != l.snap.Run {
		l.former = formerRun{l.snap.Run, now}
	}
	l.snap, l.arrived = s, now
	l.snapshot.Store(s)
	l.history.Observe(s)
	l.page.Observe(s)
	paused := map[string]bool{}
	for _, c := range s.Containers {
		paused[c.ID] = c.Paused
	}
	maps.DeleteFunc(l.since, func(id string, _ time.Time) bool { _, known := paused[id]; return !known })
	maps.DeleteFunc(l.freed, func(id string, _ time.Time) bool { return !paused[id] })
	maps.DeleteFunc(l.retry, func(id string, b backoff) bool {
		_, known := paused[id]
		return !known && l.arrived.After(b.next)
	})
}

// refresh asks for a snapshot when the stream alone is not enough: alerts wait
// for one that is younger than they are; a plan waits for a fresh sample, which
// the stream does not bring if nothing changed; or the last one gets old.
func (l *loop) refresh(ctx context.Context, now time.Time) {
	if l.fetching || now.Before(l.fetchAt) {
		return
	}
	every := 2 * time.Second
	if len(l.holds) > 0 || len(l.mem.waits) > 0 {
		every = 150 * time.Millisecond
	}
	if l.inbox.Len() == 0 && l.snap != nil && now.Sub(l.snap.Time) < every && now.Sub(l.asked) < every {
		return
	}
	l.fetching, l.asked = true, now
	last := l.inbox.Last()
	l.fetchAt = now.Add(l.o.Tick / 2)
	go func() {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		s, err := l.o.Source.Snapshot(ctx)
		if err == nil && s == nil {
			err = fmt.Errorf("the source has no snapshot yet")
		}
		l.fetched <- fetched{snap: s, inbox: last, err: err}
	}()
}

// fairChance is how long the first snapshot may take before that is a trouble.
const fairChance = 5 * time.Second

func (l *loop) takeFetched(f fetched) {
	l.fetching = false
	if f.err != nil {
		l.fetchAt = l.o.Now().Add(500 * time.Millisecond)
		// At a start in one process the exporter may need a moment.
		if !l.away && (l.snap != nil || l.o.Now().Sub(l.began) > fairChance) {
			l.away, l.trouble = true, "no snapshot: "+f.err.Error()
			l.log.Warn("no snapshot from the exporter; nothing new is held, and what is held is let go when its lease runs out", "err", f.err)
		}
		return
	}
	if l.away {
		l.away, l.trouble = false, ""
		l.log.Info("the exporter answers")
	}
	l.take(f.snap)
	l.fetchAt = time.Time{} // what came in meanwhile needs another one
	l.consume(f.inbox)
}

// usable reports whether the snapshot may be acted on.
func (l *loop) usable(now time.Time) bool {
	why := l.unusable(now)
	if why != "" && l.trouble == "" && l.snap != nil {
		l.log.Warn("not acting", "reason", why)
	}
	if !l.away {
		l.trouble = why
	}
	return why == ""
}

func (l *loop) unusable(now time.Time) string {
	switch {
	case l.snap == nil:
		return "there is no snapshot yet"
	case now.Sub(l.snap.Time) > l.o.MaxSnapshotAge:
		return "the snapshot is old"
	case !l.snap.Health.DeviceUp:
		return "the exporter cannot read the GPUs"
	case !l.snap.Health.EngineUp:
		return "the exporter cannot read the container engine"
	default:
		return ""
	}
}
