// Package faults restarts dockerd and kills the actuator at random moments, replays
// alerts at it, and counts who is stuck, what is lost, and what a person wanted that was undone.
package faults

import (
	"context"
	"fmt"

	"github.com/laxity/laxity/bench"
)

const about = `Three containers compute without end on one GPU under one-at-a-time arbitration, so that two are held.
Two more are a person's: one is paused by them, one was held and then unpaused by them. First dockerd, one
of its own, is restarted: by turns by SIGTERM and SIGKILL, at a random moment of the 150 ms after the actuator
accepted an alert that asks for one more pause. That must take effect when dockerd is back; when no alert counts
any more all must go on. It is done with live-restore, where containers live on, and without it, where they end with
dockerd, which starts them again (no person wants anything there). Then, on the machine's engine, the actuator is
killed with SIGKILL at such a moment; its guardian has to release all. It is started again and must act on the alert
that it had accepted. Half as often it is killed with an alert just accepted, started at once, and killed again
at a random moment of its first 400 ms. At the end Alertmanager's payloads come a thousand times: out of order,
each twice, half of the resolved never; an alert that fires anew after them must take effect. Stuck is who is
paused by the engine's word or by the kernel's. What a person wanted is checked against the engine's own events,
over the whole run. Docker and processes are real.`

// Ways of hurting it.
const (
	killed   = "actuator killed"
	early    = "actuator killed while it starts"
	replayed = "alerts replayed"
)

// Experiment is the fault campaign.
func Experiment() bench.Experiment {
	return bench.Experiment{
		Name: "faults", Title: "Faults: dockerd restarted and the actuator killed at random moments, alerts replayed", About: about,
		Settings: []bench.Setting{
			{Name: "restarts", Means: "how often dockerd is restarted, with live-restore and again without it; 0: not at all; needs root; 20"},
			{Name: "kills", Means: "how often the actuator is killed; 200"},
			{Name: "early", Means: "how often it is killed while it starts; 100"},
			{Name: "payloads", Means: "how many alerts are replayed; 1000"},
		},
		Run: run, Figures: figures, Table: table,
	}
}

func run(ctx context.Context, env bench.Env) (rows []bench.Row, err error) {
	again, kills, starts, payloads := 20, 200, 100, 1000
	if env.Quick {
		again, kills, starts, payloads = 2, 3, 2, 50
	}
	if again, err = env.Number("restarts", 0, again); err != nil {
		return nil, err
	}
	for name, n := range map[string]*int{"kills": &kills, "early": &starts, "payloads": &payloads} {
		if *n, err = env.Number(name, 1, *n); err != nil {
			return nil, err
		}
	}
	if again > 0 {
		for _, live := range []bool{true, false} {
			restarted, err := restarts(ctx, env, live, again)
			rows = append(rows, restarted...)
			if err != nil {
				return rows, err
			}
			env.Log("dockerd restarted, live-restore %t: %d", live, len(restarted))
		}
	}
	hurt, err := hurtActuator(ctx, env, kills, starts, payloads)
	return append(rows, hurt...), err
}

// hurtActuator kills the actuator on the machine's own engine, and replays alerts at it.
func hurtActuator(ctx context.Context, env bench.Env, kills, starts, payloads int) (rows []bench.Row, err error) {
	m, err := newMachine(ctx, env)
	if err != nil {
		return nil, err
	}
	defer m.close()
	if err := m.open(ctx, false); err != nil {
		return nil, err
	}
	if err := m.people(ctx, longLease); err != nil {
		return nil, err
	}
	for _, fault := range []struct {
		way   string
		times int
		do    func(context.Context, int) (bench.Row, error)
	}{{killed, kills, m.kill}, {early, starts, m.killEarly}} {
		for i := range fault.times {
			r, err := fault.do(ctx, i)
			if err != nil {
				return rows, fmt.Errorf("%s, %d: %w", fault.way, i+1, err)
			}
			rows = append(rows, r)
			if (i+1)%20 == 0 {
				env.Log("%s: %d of %d", fault.way, i+1, fault.times)
			}
		}
	}
	r, err := m.replay(ctx, payloads)
	if err != nil {
		return rows, err
	}
	return append(rows, r), nil
}
