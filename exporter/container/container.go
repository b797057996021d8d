// Package container is a read-only view of the containers on one node: which
// exist, their labels, their state, and which container a PID belongs to.
//
// The adapter for the Docker engine is container/docker. This package imports
// the standard library and exporter/task only.
package container

import (
	"context"
	"time"

	"github.com/laxity/laxity/exporter/task"
)

// Container is one running or paused container, as its engine describes it.
type Container struct {
	ID      string // 64 hex digits
	Name    string // without the leading slash
	Image   string
	Command string
	Labels  map[string]string
	PID     int // first process, in the host's PID namespace
	Paused  bool
	Started time.Time
	// GPUs is what the container was given: UUIDs or indices as the engine
	// wrote them (device requests, NVIDIA_VISIBLE_DEVICES); nil when not known.
	GPUs []string
}

// EventKind is what happened to a container.
type EventKind string

const (
	Started  EventKind = "start"
	Died     EventKind = "die"
	Paused   EventKind = "pause"
	Unpaused EventKind = "unpause"
	Renamed  EventKind = "rename"
	Removed  EventKind = "destroy"
)

// Event is one change of one container.
type Event struct {
	Kind EventKind
	ID   string
	// Time is the engine's own time of the event.
	Time time.Time
	// Container is set for Started and Renamed: the container as it is now.
	Container *Container
}

// Source lists containers and tells of changes.
type Source interface {
	// List returns every running or paused container.
	List(ctx context.Context) ([]Container, error)
	// Watch sends events until ctx ends or the stream breaks, then closes the
	// channel. Events MUST be those after the call to Watch; a caller that lists
	// after Watch returned misses nothing.
	Watch(ctx context.Context) (<-chan Event, error)
}

// Spec reads the laxity.* labels.
func (c Container) Spec() (task.Spec, []task.InvalidLabel) { return task.ParseLabels(c.Labels) }
