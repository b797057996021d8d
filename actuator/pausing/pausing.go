// Package pausing puts together what pauses containers: the engine that was chosen, and the record.
//
// It imports actuator/enforce, actuator/enforce/containerd, actuator/enforce/crio, actuator/enforce/docker,
// actuator/journal, internal/cri, internal/ctrd, internal/engine and the standard library.
package pausing

import (
	"context"
	"errors"
	"io"

	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/enforce/containerd"
	"github.com/laxity/laxity/actuator/enforce/crio"
	"github.com/laxity/laxity/actuator/enforce/docker"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/internal/cri"
	"github.com/laxity/laxity/internal/ctrd"
	"github.com/laxity/laxity/internal/engine"
)

// Pauser is an Enforcer with its connection. It has the engine's name (arbiter.Named).
type Pauser struct {
	enforcer
	connection io.Closer
}

type enforcer interface {
	enforce.Enforcer
	Engine(ctx context.Context) (string, error)
}

// Close closes the connection to the engine. What is paused stays so, on record.
func (p *Pauser) Close() error { return p.connection.Close() }

// Open prepares to pause by the chosen engine; it does not call it yet.
func Open(choice engine.Choice, j *journal.Journal) (*Pauser, error) {
	choice, _ = choice.Resolve(engine.This)
	p := &Pauser{}
	var err error
	switch choice.Kind {
	case engine.Containerd:
		err = p.containerd(choice, j)
	case engine.CRIO:
		err = p.crio(choice, j)
	default:
		err = p.docker(choice, j)
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (p *Pauser) containerd(choice engine.Choice, j *journal.Journal) error {
	c, err := ctrd.New(choice.Containerd())
	if err != nil {
		return err
	}
	e, err := containerd.New(containerd.Options{Client: c, Journal: j})
	if err != nil {
		return errors.Join(err, c.Close())
	}
	p.enforcer, p.connection = e, c
	return nil
}

func (p *Pauser) crio(choice engine.Choice, j *journal.Journal) error {
	c, err := cri.New(choice.CRIOAddress)
	if err != nil {
		return err
	}
	e, err := crio.New(crio.Options{Client: c, Journal: j})
	if err != nil {
		return errors.Join(err, c.Close())
	}
	p.enforcer, p.connection = e, c
	return nil
}

func (p *Pauser) docker(choice engine.Choice, j *journal.Journal) error {
	c, err := docker.Dial(choice.DockerHost)
	if err != nil {
		return err
	}
	e, err := docker.New(docker.Options{Engine: c, Journal: j})
	if err != nil {
		return errors.Join(err, c.Close())
	}
	p.enforcer, p.connection = e, c
	return nil
}
