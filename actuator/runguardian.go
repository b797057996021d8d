package actuator

import (
	"context"
	"errors"
	"log/slog"

	"github.com/laxity/laxity/actuator/enforce/docker"
	"github.com/laxity/laxity/actuator/enforce/gate"
	"github.com/laxity/laxity/actuator/enforce/memory"
	"github.com/laxity/laxity/actuator/guardian"
	"github.com/laxity/laxity/actuator/journal"
)

// GuardianOptions of RunGuardian.
type GuardianOptions struct {
	StateDir   string
	DockerHost string
	// Once ends the guardian when no actuator lives and nothing is on record.
	Once bool
	// ContainerOf is as in Options. Without it, containers that are off their GPUs stay
	// there.
	ContainerOf func(pid int) (id string, ok bool, err error)
	Logger      *slog.Logger
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
	var bringBack func(context.Context) (int, error)
	if o.ContainerOf != nil {
		s := &bringer{o: o, log: o.Logger, said: map[string]string{}}
		defer s.close()
		bringBack = s.resume
	}
	g, err := guardian.New(guardian.Options{
		Swaps:    bringBack,
		StateDir: o.StateDir, Journal: j, Enforcer: e, Logger: o.Logger, Once: o.Once,
		Gate: func(ctx context.Context, expired bool) (continued int, err error) {
			for _, name := range []string{gate.Name(o.StateDir), memory.Name(o.StateDir)} {
				n, lerr := gate.LetGo(ctx, gate.LetGoOptions{Name: name, IfExpired: expired})
				if lerr == nil && !expired {
					lerr = gate.Forget(name) // whoever made it is dead; the next one makes a new record
				}
				continued, err = continued+n, errors.Join(err, lerr)
			}
			return continued, err
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
