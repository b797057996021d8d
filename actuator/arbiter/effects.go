package arbiter

import (
	"context"
	"log/slog"
	"time"

	"github.com/laxity/laxity/actuator/arbiter/core"
	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/enforce/memory"
)

// carryOut does what the core asks for, until there is nothing left. Slow effects run in
// goroutines.
func (a *Arbiter) carryOut(ctx context.Context) {
	for e := a.core.Effects(); !e.Empty(); e = a.core.Effects() {
		a.report(e)
		a.keepRecord(e)
		if e.Memory != nil {
			a.updateMemory(*e.Memory)
		}
		for _, d := range e.Divide {
			a.divide(ctx, d)
		}
		for _, action := range e.Actions {
			a.act(ctx, action)
		}
		if e.Fetch {
			a.fetch(ctx)
		}
		if !e.Planned.IsZero() {
			a.o.Metrics.Decision.Observe(a.o.Now().Sub(e.Planned).Seconds())
		}
		if !e.Wake.IsZero() {
			a.wake.Reset(max(e.Wake.Sub(a.o.Now()), time.Millisecond))
		}
	}
}

// report updates metrics, records decisions and writes the log. Metrics come first: a decision that
// can be read is counted already.
func (a *Arbiter) report(e core.Effects) {
	for _, c := range e.Counts {
		a.count(c)
	}
	for _, d := range e.Decisions {
		d = a.o.Decisions.Add(d)
		a.logDecision(d)
	}
	if len(e.Decisions) > 0 && a.o.Changed != nil {
		a.o.Changed()
	}
	for _, l := range e.Logs {
		a.log.Log(context.Background(), l.Level, l.Message, l.Args...)
	}
}

func (a *Arbiter) logDecision(d decision.Decision) {
	level := slog.LevelInfo
	if d.Result == decision.Failed {
		level = slog.LevelWarn
	}
	args := []any{"result", string(d.Result), "reason", d.Reason}
	for _, kv := range [][2]string{{"container", d.Container}, {"alert", d.Alert}, {"err", d.Error}} {
		if kv[1] != "" {
			args = append(args, kv[0], kv[1])
		}
	}
	a.log.Log(context.Background(), level, string(d.Kind), args...)
}

func (a *Arbiter) count(c core.Count) {
	m := a.o.Metrics
	switch c.What {
	case core.Alerts:
		m.Alerts.WithLabelValues(c.Labels...).Add(c.Value)
	case core.ActionsDone:
		m.Actions.WithLabelValues(c.Labels...).Add(c.Value)
	case core.ActionSeconds:
		m.ActionSeconds.WithLabelValues(c.Labels...).Observe(c.Value)
	case core.Latency:
		m.Latency.WithLabelValues(c.Labels...).Observe(c.Value)
	case core.Preemptions:
		m.Preemptions.Add(c.Value)
	case core.BreakerTrips:
		m.BreakerTrips.Add(c.Value)
	case core.HoldsLost:
		m.Lost.WithLabelValues(c.Labels...).Add(c.Value)
	case core.Changes:
		m.Changes.WithLabelValues(c.Labels...).Add(c.Value)
	case core.ChannelSkew:
		m.ChannelSkew.WithLabelValues(c.Labels...).Observe(c.Value)
	case core.Judged:
		m.Judged.WithLabelValues(c.Labels...).Add(c.Value)
	case core.Allocations:
		m.Allocations.WithLabelValues(c.Labels...).Add(c.Value)
	case core.AllocationWait:
		m.AllocationWait.WithLabelValues(c.Labels...).Observe(c.Value)
	case core.SwapBytes:
		m.SwapBytes.WithLabelValues(c.Labels...).Add(c.Value)
	case core.SwapSeconds:
		m.SwapSeconds.WithLabelValues(c.Labels...).Observe(c.Value)
	}
}

// keepRecord extends the records of renewed holds, and removes those of ended ones.
func (a *Arbiter) keepRecord(e core.Effects) {
	if a.o.Core.DryRun { // we have no records
		for _, d := range e.Drop {
			a.core.Dropped(a.o.Now(), d, nil)
		}
		return
	}
	for _, r := range e.Renew {
		if _, err := a.o.Journal.Renew(r.Hold); err != nil {
			a.core.NotRenewed(r, err)
		}
	}
	for _, d := range e.Drop {
		a.core.Dropped(a.o.Now(), d, a.o.Journal.Remove(d.ContainerID))
	}
}

// updateMemory passes the facts to ledger and guard.
func (a *Arbiter) updateMemory(m core.Memory) {
	again := a.o.Ledger.Update(m.Facts)
	guard := a.o.MemoryGuard // one that does not guard ignores this
	if guard != nil && !m.Blind {
		targets := make([]memory.Target, 0, len(m.Cover))
		for _, c := range m.Cover {
			targets = append(targets, memory.Target(c))
		}
		guard.Cover(targets)
	}
	if guard != nil && (again || m.Blind) {
		guard.Reconsider()
	}
	if !m.Blind {
		a.core.Allocations(a.o.Now(), a.o.Ledger.Events())
	}
}
