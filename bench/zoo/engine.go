package zoo

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// What runs the containers, as the setting engine says.
const (
	ownDocker   = "own"        // a Docker engine of its own
	machines    = "machine"    // the machine's Docker engine
	ownPods     = "containerd" // a containerd of its own, whose CRI service makes pods
	engineMeans = "own (a Docker engine of its own, which is restarted too), machine (this machine's), or containerd (one of its own with pods, restarted too); own where it can be had"
)

// engine runs containers.
type engine interface {
	// image makes an image of a tar archive.
	image(ctx context.Context, layer []byte) error
	// create makes a container that does not run yet. name is what Laxity calls it. It goes on with
	// what it was asked for when ctx ends: a container that nobody knows of would stay behind.
	create(ctx context.Context, f form) (id, name string, err error)
	// start starts it, and returns when it has.
	start(ctx context.Context, id string) error
	// inspect says how it is.
	inspect(ctx context.Context, id string) (status, error)
	// wait returns when it has ended.
	wait(ctx context.Context, id string) error
	// output is the end of what it printed.
	output(ctx context.Context, id string) string
	// stop asks it to end, and kills it if it lives on after a second.
	stop(ctx context.Context, id string) error
	// remove ends and removes it. One that is gone is no error.
	remove(ctx context.Context, id string) error
	// flags are those by which Laxity's programs use the engine.
	flags() []string
	// gone reports whether an error means that the engine does not answer now, or not any more.
	gone(err error) bool
	// service is the engine itself where it may be restarted; nil: it may not.
	service() service
	// close removes the containers that are left and all the rest.
	close(ctx context.Context) error
}

// service is what can be restarted.
type service interface {
	Start(ctx context.Context) error
	Stop() error
	Kill() error
}

// form is what a container is to be.
type form struct {
	name             string
	labels           map[string]string
	command, environ []string
	user             string // a number; empty: root
	binds            []bind
	devices          []string
}

// bind is a folder of the machine in a container.
type bind struct {
	from, to string
	readOnly bool
}

// status is what an engine says of a container.
type status struct {
	word             string // its own
	pid              int    // of the first process; 0 while it does not run
	code             int    // once it has ended
	started, stopped time.Time
}

var errNotThere = errors.New("there is no such container")

// openEngine takes the engine of the setting: one of its own may be restarted, and nobody else
// has containers on it.
func (m *machine) openEngine(ctx context.Context) (err error) {
	switch kind := m.env.Args["engine"]; kind {
	case ownPods:
		m.engine, err = openPods(ctx)
	case "", ownDocker, machines:
		m.engine, err = openDocker(ctx, m, kind != machines && m.env.DockerHost == "")
	default:
		err = fmt.Errorf("--engine=%s: write %s, %s or %s", kind, ownDocker, machines, ownPods)
	}
	return err
}
