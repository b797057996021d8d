// Package container reads the containers on one node: which
// exist, their labels, their state, and which container a PID belongs to.
//
// The adapters are container/docker, container/containerd and container/crio. This package imports
// the standard library and exporter/task only.
package container

import (
	"context"
	"errors"
	"time"

	"github.com/laxity/laxity/exporter/task"
)

// ErrUnavailable means that the container engine does not answer. It is a state,
// not a bug; the wrapped text says what to do.
var ErrUnavailable = errors.New("container engine unavailable")

// Container is one running or paused container, as its engine describes it.
type Container struct {
	ID      string // 64 hex digits
	Name    string // without a leading slash; unique on this machine. Of a pod: task.PodContainer
	Image   string
	Command string
	Labels  map[string]string
	PID     int // first process, in the host's PID namespace; 0 once it has ended, or when not known
	Paused  bool
	Started time.Time
	// GPUs is what the container was given, as the engine wrote it (device
	// requests, NVIDIA_VISIBLE_DEVICES, /dev/nvidiaN): UUIDs, indices (also
	// "0:1", the first MIG instance of the first GPU), or "all" alone. Empty but
	// not nil: none. Nil: not known.
	GPUs []string
	// Partial: the engine names the container, but does not describe it, or not with its pod. What was
	// known of it before counts instead.
	Partial bool
}

// DescribeTimeout bounds the question about one container: one that hangs in the engine must not hide
// the others.
const DescribeTimeout = 5 * time.Second

// EventKind is what happened to a container.
type EventKind string

// The events of a container.
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
	// List returns every running or paused container. It MUST NOT return a part of them: it returns an error instead, one that wraps
	// ErrUnavailable when the engine does not answer. A container that ends
	// while it lists may be there or not.
	List(ctx context.Context) ([]Container, error)
	// Watch sends events until ctx ends or the stream breaks, then closes the
	// channel. Events MUST be those after the call to Watch; a caller that lists
	// after Watch returned misses nothing. Events of one container keep their
	// order. A Started whose container has ended meanwhile comes with PID 0.
	Watch(ctx context.Context) (<-chan Event, error)
}

// Spec reads the laxity.* labels.
func (c Container) Spec(most task.Limits) (task.Spec, []task.InvalidLabel) {
	return most.ParseLabels(c.Labels)
}
