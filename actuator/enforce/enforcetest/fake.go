// Package enforcetest holds what tests of enforcement share: a container engine
// in memory, and the conformance suite that every enforce.Enforcer runs.
package enforcetest

import (
	"context"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"

	"github.com/laxity/laxity/internal/freezer"
)

// Engine is a container engine in memory, with the calls that enforce/docker
// uses, and the engine's faults at will. It is also the kernel's freezer.
type Engine struct {
	mu         sync.Mutex
	containers map[string]*containerState
	started    int // how many containers were
	calls      []string
	fail       func(call, id string) error
	changed    chan struct{}
}

type containerState struct {
	pid     int
	started time.Time
	paused  bool          // what the engine says
	kernel  freezer.State // and the kernel
	labels  map[string]string
}

// NewEngine makes an empty engine.
func NewEngine() *Engine {
	return &Engine{containers: map[string]*containerState{}, changed: make(chan struct{})}
}

// Run starts a container, again if it is there.
func (e *Engine) Run(id string) {
	e.change(func() {
		e.containers[id] = &containerState{pid: 1000 + e.started, started: time.Now()}
		e.started++
	})
}

// Label gives a container Docker labels.
func (e *Engine) Label(id string, labels map[string]string) {
	e.change(func() { e.containers[id].labels = labels })
}

// Remove ends a container.
func (e *Engine) Remove(id string) { e.change(func() { delete(e.containers, id) }) }

// SetPaused is a person who pauses or unpauses.
func (e *Engine) SetPaused(id string, paused bool) {
	e.change(func() { b := e.containers[id]; b.paused, b.kernel = paused, stateOf(paused) })
}

// Lie makes the engine's mind differ from the kernel's state.
func (e *Engine) Lie(id string, paused, frozen bool) {
	e.change(func() { b := e.containers[id]; b.paused, b.kernel = paused, stateOf(frozen) })
}

// SetFreezer sets the kernel's state behind the engine's back. A container that is freezing has a
// process that waits in the kernel: it freezes when the test says so.
func (e *Engine) SetFreezer(id string, state freezer.State) {
	e.change(func() { e.containers[id].kernel = state })
}

func stateOf(frozen bool) freezer.State {
	if frozen {
		return freezer.Frozen
	}
	return freezer.Thawed
}

// FailWith makes calls fail: f returns nil for those that should work. The call
// is inspect, pause or unpause. A nil f ends it. A call stands still as long as f.
func (e *Engine) FailWith(f func(call, id string) error) { e.change(func() { e.fail = f }) }

// Paused says what engine and kernel say.
func (e *Engine) Paused(id string) (engine, kernel bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b, ok := e.containers[id]
	return ok && b.paused, ok && b.kernel == freezer.Frozen
}

// Calls lists the mutating calls so far, such as "pause ID".
func (e *Engine) Calls() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string(nil), e.calls...)
}

// Changed is closed by the next change.
func (e *Engine) Changed() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.changed
}

func (e *Engine) change(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
	close(e.changed)
	e.changed = make(chan struct{})
}

func (e *Engine) failure(call, id string) error {
	e.mu.Lock()
	fail := e.fail
	e.mu.Unlock()
	if fail == nil {
		return nil
	}
	return fail(call, id)
}

func (e *Engine) find(id string) (*containerState, error) {
	b, ok := e.containers[id]
	if !ok {
		return nil, fmt.Errorf("No such container: %s: %w", id, errdefs.ErrNotFound) //nolint:staticcheck // the engine's words
	}
	return b, nil
}

// ContainerInspect implements docker.Engine.
func (e *Engine) ContainerInspect(_ context.Context, id string) (container.InspectResponse, error) {
	if err := e.failure("inspect", id); err != nil {
		return container.InspectResponse{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	b, err := e.find(id)
	if err != nil {
		return container.InspectResponse{}, err
	}
	return container.InspectResponse{ContainerJSONBase: &container.ContainerJSONBase{
		ID: id, State: &container.State{Running: true, Paused: b.paused, Pid: b.pid, StartedAt: b.started.Format(time.RFC3339Nano)},
	}, Config: &container.Config{Labels: b.labels}}, nil
}

// ContainerPause implements docker.Engine.
func (e *Engine) ContainerPause(_ context.Context, id string) (err error) {
	if err := e.failure("pause", id); err != nil {
		return err
	}
	e.change(func() { err = e.set("pause", id, true, errdefs.ErrConflict) })
	return err
}

// ContainerUnpause implements docker.Engine.
func (e *Engine) ContainerUnpause(_ context.Context, id string) (err error) {
	if err := e.failure("unpause", id); err != nil {
		return err
	}
	e.change(func() { err = e.set("unpause", id, false, errdefs.ErrInternal) })
	return err
}

func (e *Engine) set(call, id string, paused bool, refuse error) error {
	b, err := e.find(id)
	if err != nil {
		return err
	}
	e.calls = append(e.calls, call+" "+id)
	if b.paused == paused {
		word := map[bool]string{true: "already", false: "not"}[paused]
		return fmt.Errorf("Container %s is %s paused: %w", id, word, refuse) //nolint:staticcheck // the engine's words
	}
	b.paused, b.kernel = paused, stateOf(paused)
	return nil
}

// State implements pause.Freezer.
func (e *Engine) State(id string, _ int) (freezer.State, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b, ok := e.containers[id]
	if !ok {
		return freezer.Thawed, fmt.Errorf("no control group of container %s: %w", id, fs.ErrNotExist)
	}
	return b.kernel, nil
}

// Set implements pause.Freezer.
func (e *Engine) Set(id string, _ int, frozen bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	b, ok := e.containers[id]
	if !ok {
		return fmt.Errorf("no control group of container %s: %w", id, fs.ErrNotExist)
	}
	if !frozen || b.kernel == freezer.Thawed {
		b.kernel = stateOf(frozen)
	}
	return nil
}
