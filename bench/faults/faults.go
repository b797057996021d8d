// Package faults kills the actuator at random moments and replays alerts at it, and
// counts who is stuck, what is lost, and what a person wanted that was undone.
package faults

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/rig"
)

const about = `Three containers compute without end on one GPU under one-at-a-time arbitration, so that two are held;
a fourth was paused by a person, a fifth was held and then unpaused by a person. The actuator accepts an
alert that asks for one more pause, and is killed with SIGKILL at a random moment of the next 150 ms;
its guardian has to let all go. Then it is started again and must act on the alert that it had accepted. Half as often it
is killed with an alert just accepted, started at once, and killed again at a random moment of its first 400 ms. At the end
Alertmanager's payloads come a thousand times: out of order, each twice, half of the resolved never.
What a person wanted is checked against the engine's own events, over the whole run. Docker and
processes are real. Restarts of dockerd are a test, not part of this
(TestDockerRestarts in cmd/laxity-actuator).`

// Ways of hurting it.
const (
	killed   = "actuator killed"
	early    = "actuator killed while it starts"
	replayed = "alerts replayed"
)

// Experiment is the fault campaign.
func Experiment() bench.Experiment {
	return bench.Experiment{
		Name: "faults", Title: "Faults: the actuator killed at random moments, alerts replayed", About: about,
		Settings: []bench.Setting{
			{Name: "kills", Means: "how often the actuator is killed; 200"},
			{Name: "early", Means: "how often it is killed while it starts; 100"},
			{Name: "payloads", Means: "how many alerts are replayed; 1000"},
		},
		Run: run, Figures: figures, Table: table,
	}
}

func run(ctx context.Context, env bench.Env) (rows []bench.Row, err error) {
	kills, starts, payloads := 200, 100, 1000
	if env.Quick {
		kills, starts, payloads = 3, 2, 50
	}
	for name, n := range map[string]*int{"kills": &kills, "early": &starts, "payloads": &payloads} {
		if *n, err = env.Number(name, 1, *n); err != nil {
			return nil, err
		}
	}
	opened, err := rig.Open(ctx, env, "faults", 1)
	if err != nil {
		return nil, err
	}
	defer opened.Close()                                                   // what is left has a label
	m := &machine{Rig: opened, random: rand.New(rand.NewPCG(env.Seed, 0))} //nolint:gosec // not a secret
	defer m.close()
	if err := m.open(ctx); err != nil {
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
