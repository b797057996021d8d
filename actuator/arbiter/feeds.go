package arbiter

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/laxity/laxity/actuator/arbiter/core"
	"github.com/laxity/laxity/actuator/source"
	"github.com/laxity/laxity/actuator/webhook"
	"github.com/laxity/laxity/exporter/task"
)

// watch forwards the stream of snapshots, and reopens it when it ends.
func watch(ctx context.Context, from source.Source) <-chan *task.Snapshot {
	out := make(chan *task.Snapshot)
	go func() {
		for ctx.Err() == nil {
			in, err := from.Watch(ctx)
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
			select { // do not spin if the source ends at once
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
	return out
}

// take passes a snapshot to the core.
func (a *Arbiter) take(s *task.Snapshot) {
	if s == nil {
		return
	}
	starts := map[int]uint64{}
	if a.o.Channels != nil {
		for _, pid := range core.PIDs(s) {
			if start, lives := a.o.StartOf(pid); lives {
				starts[pid] = start
			}
		}
	}
	own := a.core.Snapshot(a.o.Now(), s, starts)
	if own == nil {
		return
	}
	a.snapshot.Store(own)
	if a.o.Observe != nil {
		a.o.Observe(own)
	}
}

// fetched is the exporter's answer.
type fetched struct {
	snap  *task.Snapshot
	inbox uint64 // the last message that had arrived when the exporter was asked
	err   error
}

const fetchTimeout = 5 * time.Second

// fetch asks the exporter for a snapshot, in a goroutine.
func (a *Arbiter) fetch(ctx context.Context) {
	last := a.o.Inbox.Last()
	go func() {
		ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
		defer cancel()
		s, err := a.o.Source.Snapshot(ctx)
		if err == nil && s == nil {
			err = errors.New("the source has no snapshot yet")
		}
		a.fetched <- fetched{snap: s, inbox: last, err: err}
	}()
}

func (a *Arbiter) takeFetched(ctx context.Context, f fetched) {
	if f.err == nil {
		a.take(f.snap)
	}
	a.core.Fetched(a.o.Now(), f.err)
	if f.err == nil {
		a.consume(ctx, f.inbox)
	}
}

// consume gives the core the messages up to last: those that arrived before the present snapshot
// was asked for, up to the first that awaits better facts. They leave the inbox together, once their leases are on disk. If we die in
// between, they are handled again, which changes nothing.
func (a *Arbiter) consume(ctx context.Context, last uint64) {
	handled := uint64(0)
	for {
		e, ok, err := a.o.Inbox.After(handled)
		if err != nil {
			a.log.Error("cannot read the inbox", "err", err)
			a.core.Postpone(a.o.Now())
			break
		}
		if !ok || e.ID > last {
			break
		}
		var m webhook.Message
		if err := json.Unmarshal(e.Payload, &m); err != nil {
			a.core.Unreadable(a.o.Now(), err)
		} else if m := messageOf(m, e.Received); a.core.Awaits(a.o.Now(), m) {
			a.core.Postpone(a.o.Now())
			break
		} else {
			a.core.Alerts(a.o.Now(), m)
		}
		a.carryOut(ctx)
		handled = e.ID
	}
	if handled == 0 {
		return
	}
	err := a.saveLeases(false)
	if err == nil {
		err = a.o.Inbox.Remove(handled)
	}
	if err != nil {
		a.log.Error("cannot keep what alerts ask for; they stay in the inbox", "err", err)
		a.core.Postpone(a.o.Now())
	}
}

// messageOf is a notification for the core, with shortened texts.
func messageOf(m webhook.Message, received time.Time) core.Message {
	out := core.Message{Truncated: m.TruncatedAlerts, Received: received}
	for _, w := range m.Alerts {
		w = w.Shortened()
		a := core.Alert{
			Name: w.Name(), Action: w.Action(), Fingerprint: w.Fingerprint, Labels: w.Labels,
			Resolved: w.Status == webhook.Resolved, StartsAt: w.StartsAt,
		}
		if a.Fingerprint == "" {
			a.Fingerprint = webhook.Short(core.Fingerprint(w.Labels))
		}
		out.Alerts = append(out.Alerts, a)
	}
	return out
}
