package gate

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/docker/docker/client"

	"github.com/laxity/laxity/actuator/enforce/docker"
	"github.com/laxity/laxity/actuator/enforce/gate"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/tenant"
	"github.com/laxity/laxity/exporter"
)

// stay is one stop at the gate.
type stay struct {
	held    time.Time // seen stopped by another process
	turn    time.Time // its turn came
	let     time.Time // the call that lets it go has returned
	running time.Time // seen running by another process
}

// queue lets one container compute at a time, first come, first served.
type queue struct {
	gate *gate.Gate

	mu      sync.Mutex
	targets map[string]gate.Target
	done    map[string][]stay
	kick    chan struct{}
}

func newQueue(g *gate.Gate) *queue {
	return &queue{gate: g, targets: map[string]gate.Target{}, done: map[string][]stay{}, kick: make(chan struct{}, 1)}
}

func (q *queue) add(ctx context.Context, t *tenant.Tenant) {
	engine, err := docker.Dial("")
	if err != nil {
		return
	}
	defer engine.Close()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.targets[t.ID] = gate.Target{ID: t.ID, PID: firstPID(ctx, engine, t.ID)}
	q.cover()
}

func firstPID(ctx context.Context, engine *client.Client, id string) int {
	c, err := engine.ContainerInspect(ctx, id)
	if err != nil || c.State == nil {
		return 0
	}
	return c.State.Pid
}

func (q *queue) remove(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.targets, id)
	q.cover()
}

func (q *queue) cover() {
	var all []gate.Target
	for _, t := range q.targets {
		all = append(all, t)
	}
	q.gate.Arbitrate(all)
	select {
	case q.kick <- struct{}{}:
	default:
	}
}

func (q *queue) stays(id string) []stay {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.done[id]
}

func (q *queue) serve(ctx context.Context) {
	const lease = 5 * time.Second
	tick := time.NewTicker(lease / 10)
	defer tick.Stop()
	_ = q.gate.Renew(lease)
	seen := map[string]time.Time{} // stays whose begin was seen: container → since when it waits
	var watchers sync.WaitGroup
	defer watchers.Wait()
	held := map[string]time.Time{}
	var heldMu sync.Mutex
	for {
		select {
		case <-ctx.Done():
			return
		case <-q.gate.Changed():
		case <-q.kick:
		case <-tick.C:
			_ = q.gate.Renew(lease)
		}
		var next string
		var first time.Time
		computing := false
		view := q.gate.View()
		for id, v := range view {
			switch {
			case v.Phase == plan.Computing:
				computing = true
			case v.Phase == plan.Waiting && !v.Admitted:
				if seen[id] != v.Since {
					seen[id] = v.Since
					pid := v.PIDs[0]
					watchers.Go(func() {
						at := await(ctx, pid, true)
						heldMu.Lock()
						defer heldMu.Unlock()
						held[id] = at
						select {
						case q.kick <- struct{}{}:
						default:
						}
					})
				}
				heldMu.Lock()
				_, stands := held[id]
				heldMu.Unlock()
				if stands && (next == "" || v.Since.Before(first)) {
					next, first = id, v.Since
				}
			}
		}
		if computing || next == "" {
			continue
		}
		heldMu.Lock()
		s := stay{held: held[next]}
		delete(held, next)
		heldMu.Unlock()
		pid := view[next].PIDs[0]
		ran := make(chan time.Time, 1)
		ready := make(chan struct{})
		go func() { close(ready); ran <- await(ctx, pid, false) }()
		<-ready
		s.turn = time.Now()
		if err := q.gate.Admit(next); err != nil {
			continue
		}
		s.let = time.Now()
		s.running = <-ran
		q.mu.Lock()
		q.done[next] = append(q.done[next], s)
		q.mu.Unlock()
	}
}

// await looks, again and again, whether a process is stopped, or is not.
func await(ctx context.Context, pid int, stopped bool) time.Time {
	path := fmt.Sprintf("/proc/%d/stat", pid)
	for ctx.Err() == nil {
		b, err := os.ReadFile(path)
		now := time.Now()
		if err != nil || isStopped(b) == stopped {
			return now
		}
	}
	return time.Now()
}

func isStopped(stat []byte) bool {
	for i := len(stat) - 1; i >= 0; i-- {
		if stat[i] == ')' {
			return i+2 < len(stat) && stat[i+2] == 'T'
		}
	}
	return false
}

// pauseOne pauses one container as soon as the exporter sees its task.
func (s *setup) pauseOne(ctx context.Context, e *exporter.Exporter, pauser *docker.Enforcer, number int) (bench.Row, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	t, err := s.tenants.Start(ctx, tenant.Spec{Name: fmt.Sprintf("laxity-bench-gate-%d-p%d", os.Getpid(), number), Args: s.args(1)})
	if err != nil {
		return nil, err
	}
	defer t.Remove() //nolint:errcheck // Close tries again
	for snapshot := range e.Watch(ctx) {
		found := false
		for _, task := range snapshot.Tasks {
			found = found || task.ContainerID == t.ID
		}
		if !found {
			continue
		}
		now := time.Now()
		h := journal.Hold{ContainerID: t.ID, Container: t.Name, Since: now, Expires: now.Add(time.Minute), Until: now.Add(time.Minute)}
		if err := pauser.Pause(ctx, h); err != nil {
			return nil, err
		}
		held := time.Now()
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
		turn := time.Now()
		if err := pauser.Unpause(ctx, t.ID); err != nil {
			return nil, err
		}
		running := time.Now()
		if err := t.Wait(ctx); err != nil {
			return nil, err
		}
		events, err := t.Timeline(ctx)
		if err != nil {
			return nil, err
		}
		row := bench.Row{"way": paused, "pausing": held.Sub(now).Seconds(), "turn_to_running": running.Sub(turn).Seconds(), "slip": false}
		for _, event := range events {
			if event.Name == "init_begin" {
				row["seen_to_held"] = held.Sub(event.Time).Seconds()
			}
		}
		if p := pair(events); len(p) == 1 {
			row["slip"] = p[0].end.Before(held)
		}
		return row, nil
	}
	return nil, fmt.Errorf("the exporter did not see %s", t.Name)
}
