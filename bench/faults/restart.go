package faults

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/laxity/laxity/actuator/webhook"
	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/internal/daemon/dockerd"
)

// restart is one way to restart the Docker engine.
type restart struct{ live, kill bool }

// everyRestart is in the order of the table.
var everyRestart = []restart{{live: true}, {live: true, kill: true}, {}, {kill: true}}

func (r restart) String() string {
	end, keeps := "SIGTERM", "containers end"
	if r.kill {
		end = "SIGKILL"
	}
	if r.live {
		keeps = "live-restore"
	}
	return fmt.Sprintf("dockerd restarted by %s, %s", end, keeps)
}

// restarts ends the Docker engine and starts it again, so often, with live-restore
// or without. It is an engine of its own, on a machine of its own.
func restarts(ctx context.Context, env bench.Env, live bool, times int) (rows []bench.Row, err error) {
	var args []string
	if live {
		args = append(args, dockerd.LiveRestore)
	}
	engine, err := dockerd.New(ctx, args...)
	if err != nil {
		return nil, fmt.Errorf("%w (--set restarts=0 leaves its restarts out)", err)
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	env.DockerHost = engine.Host
	m, err := newMachine(ctx, env)
	if err != nil {
		return nil, err
	}
	defer m.close()
	// Without live-restore containers end with the engine: what a person wanted of
	// them ends, too.
	if err := m.open(ctx, !live); err != nil {
		return nil, err
	}
	begin := m.people
	if !live {
		begin = m.start
	}
	if err := begin(ctx, longLease); err != nil {
		return nil, err
	}
	for i := range times {
		way := restart{live: live, kill: i%2 == 1}
		r, err := m.restart(ctx, engine, way, i)
		if err := cmp.Or(err, ctx.Err()); err != nil { // what is seen after the end is no result
			return rows, fmt.Errorf("%s, %d: %w", way, i+1, err)
		}
		rows = append(rows, r)
	}
	return rows, m.stop()
}

// restart ends the engine while somebody is held and an alert was just accepted. That
// must take effect when the engine is back, and when no alert counts any more all must
// go on.
func (m *machine) restart(ctx context.Context, engine *dockerd.Engine, way restart, number int) (bench.Row, error) {
	contention := m.contention()
	contention.StartsAt = began.Add(time.Duration(1+number) * time.Second) // the one before is over
	if _, err := m.post(ctx, contention); err != nil {
		return nil, err
	}
	if err := m.until(ctx, "two are held", func() bool { return m.held() == 2 }); err != nil {
		return nil, err
	}
	worker := m.workers[m.random.IntN(len(m.workers))]
	wish := m.wish("restart-"+strconv.Itoa(number), slices.Index(m.workers, worker))
	accepted, err := m.post(ctx, wish)
	if err != nil {
		return nil, err
	}
	moment := time.Duration(m.random.Int64N(int64(window)))
	time.Sleep(moment) // the moment is the point
	r := bench.Row{"way": way.String(), "moment": moment.Seconds(), "held": m.held(), "accepted": accepted, "lost": 0, "stuck": 0}
	end := engine.Stop
	if way.kill {
		end = engine.Kill
	}
	ended := time.Now()
	if err := errors.Join(end(), engine.Start(ctx)); err != nil {
		return nil, err
	}
	r["down"] = time.Since(ended).Seconds()
	if m.persons != nil {
		m.persons.again(ctx, ended)
	}
	knew, was := false, false // its lease ends before our patience: at the end it is not known in any case
	acts := func() bool {
		known, paused := m.knows(ctx, wish.Fingerprint), m.paused(ctx, worker)
		knew, was = knew || known, was || paused
		return known && paused
	}
	if accepted && m.until(ctx, "the alert takes effect", acts) != nil {
		r["lost"] = 1
		m.log("%s, %d: an alert is lost; was ever known: %t, %s ever paused: %t; dockerd was down for %.1fs, the lease is %v", way, number+1, knew, worker.Name, was,
			r["down"], longLease)
		m.log("the actuator:\n%s", m.actuator.Said())
	}
	wish.Status = webhook.Resolved
	if _, err := m.post(ctx, wish); err != nil {
		return nil, err
	}
	// The contention goes on, and its lease runs out.
	if m.until(ctx, "all run", func() bool { return m.stuck(ctx) == 0 }) != nil {
		r["stuck"] = m.stuck(ctx)
	}
	return r, m.wronged(ctx, r)
}
