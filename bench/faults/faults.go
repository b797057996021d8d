// Package faults restarts dockerd and kills the actuator at random moments, replays
// alerts at it, and counts who is stuck, what is lost, and what a person wanted that was undone.
package faults

import (
	"cmp"
	"context"
	"fmt"

	"github.com/laxity/laxity/bench"
)

const about = `Three containers compute without end on one GPU under one-at-a-time arbitration, so two are held. Two more belong to
a person, who paused one of them, and unpaused the other one after it was held. First the experiment restarts a dockerd
of its own, by turns with SIGTERM and SIGKILL, at a random moment of the 150 ms after the actuator accepted an alert
that asks for one more pause. The alert must take effect when dockerd is back; when no alert counts any more, all
containers must continue. This is done with live-restore, where containers survive dockerd, and without it, where they
end and dockerd starts them again (then no container is a person's). Next, on the machine's own engine, it kills the actuator
with SIGKILL at such a moment. Its guardian must release every container; a new actuator must act on the alert that the dead one
had accepted. Half as often it kills the actuator just after an alert was accepted, starts it at once, and kills it again
at a random moment of its first 400 ms. At the end it sends Alertmanager's payloads a thousand times: out of order,
each twice, half of the resolved ones never; an alert that fires anew after them must take effect. A container is stuck
if it is paused by the engine's word or by the kernel's. What the person wanted is checked against the engine's events
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
			if err := cmp.Or(err, ctx.Err()); err != nil { // what is seen after the end is no result
				return rows, fmt.Errorf("%s, %d: %w", fault.way, i+1, err)
			}
			rows = append(rows, r)
			if (i+1)%20 == 0 {
				env.Log("%s: %d of %d", fault.way, i+1, fault.times)
			}
		}
	}
	r, err := m.replay(ctx, payloads)
	if err := cmp.Or(err, ctx.Err()); err != nil {
		return rows, err
	}
	return append(rows, r), nil
}
