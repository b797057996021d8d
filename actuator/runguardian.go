package actuator

import (
	"context"
	"errors"
	"log/slog"

	"github.com/laxity/laxity/actuator/enforce/docker"
	"github.com/laxity/laxity/actuator/enforce/gate"
	"github.com/laxity/laxity/actuator/guardian"
	"github.com/laxity/laxity/actuator/journal"
)

// GuardianOptions of RunGuardian.
type GuardianOptions struct {
	StateDir   string
	DockerHost string
	// Once ends the guardian when no actuator lives and nothing is on record.
	Once   bool
	Logger *slog.Logger
}

// RunGuardian is the whole guardian process, for a main to call: it lets go
// through Docker what an actuator with the same state folder left paused. A
// second guardian of one folder ends at once, without an error.
//
// With Once it outlives the end of ctx until no actuator lives and nothing is on
// record: whoever stops a whole group of processes must not take the guardian
// away before the actuator.
func RunGuardian(ctx context.Context, o GuardianOptions) error {
	j, err := journal.Open(o.StateDir)
	if err != nil {
		return err
	}
	engine, err := docker.Dial(o.DockerHost)
	if err != nil {
		return err
	}
	defer engine.Close()
	e, err := docker.New(docker.Options{Engine: engine, Journal: j})
	if err != nil {
		return err
	}
	g, err := guardian.New(guardian.Options{
		StateDir: o.StateDir, Journal: j, Enforcer: e, Logger: o.Logger, Once: o.Once,
		Gate: func(ctx context.Context, expired bool) (int, error) {
			name := gate.Name(o.StateDir)
			n, err := gate.LetGo(ctx, gate.LetGoOptions{Name: name, IfExpired: expired})
			if err == nil && !expired {
				err = gate.Forget(name) // its gate is dead; the next one makes a new record
			}
			return n, err
		},
	})
	if err != nil {
		return err
	}
	if o.Once {
		ctx = context.WithoutCancel(ctx)
	}
	if err := g.Run(ctx); err != nil && !errors.Is(err, guardian.ErrTaken) {
		return err
	}
	return nil
}
