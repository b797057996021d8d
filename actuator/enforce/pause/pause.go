// Package pause pauses and unpauses containers through their engine. It writes a record before the
// call, and compares the outcome with the kernel's freezer after it. An Engine says how its engine
// is called: enforce/docker, enforce/containerd and enforce/crio.
//
// A record is removed on the engine's word only if the kernel does not contradict it. An engine may
// be slow, may have lost track, or may be another than the one that paused the container.
//
// It is an adapter: it imports actuator/enforce, actuator/record, actuator/journal, internal/freezer
// and the standard library.
package pause

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/record"
	"github.com/laxity/laxity/internal/freezer"
)

// Engine is a container engine. Its errors wrap enforce.ErrGone, enforce.ErrUnavailable, or one of
// the two below, where one of them is meant.
type Engine interface {
	// Inspect returns ErrGone for a container that does not exist or does not run.
	Inspect(ctx context.Context, id string) (State, error)
	Pause(ctx context.Context, id string) error
	Unpause(ctx context.Context, id string) error
}

// Errors of an Engine.
var (
	// ErrAlready means that the engine takes the container to be paused, or unpaused, already.
	ErrAlready = errors.New("it is so already")
	// ErrLostTrack means that the engine refuses because the container is not in the state that
	// the engine takes it to be in.
	ErrLostTrack = errors.New("the engine has lost track of it")
)

// State is what an engine says of a container that runs.
type State struct {
	PID    int // its first process, in the host's PID namespace
	Paused bool
	// Started is when its first process began; zero where that is not known.
	Started time.Time
	Labels  map[string]string
}

// Freezer freezes containers in the kernel. A container is named by its id and by pid, its first
// process, which is 0 where the engine does not say.
type Freezer interface {
	// State says what the kernel does with the container, or returns an error where that cannot be
	// read, or where the container does not exist.
	State(id string, pid int) (freezer.State, error)
	// Set freezes or thaws the container without the engine, for a container of which the engine has
	// lost track. It returns an error and does nothing if it finds no control group of this
	// container.
	Set(id string, pid int, frozen bool) error
}

// Options of an Enforcer. Engine and Journal are required.
type Options struct {
	Engine  Engine
	Journal *journal.Journal
	// Freezer is the kernel's freezer by default.
	Freezer Freezer
	// CallTimeout bounds one call of the engine; 5 s by default.
	CallTimeout time.Duration
	// FreezeTimeout is how long the kernel may take to follow the engine; 1 s by
	// default.
	FreezeTimeout time.Duration
	// Attempts bounds how often pause and unpause are called; 5 by default.
	Attempts int
	// Late is how long a requested pause may take to begin after the engine answers; 700 ms by
	// default.
	Late time.Duration
}

// Enforcer implements enforce.Enforcer.
type Enforcer struct {
	o     Options
	calls atomic.Uint64
	waits atomic.Uint64
}

var _ enforce.Enforcer = (*Enforcer)(nil)

// New checks the options and fills in the defaults.
func New(o Options) (*Enforcer, error) {
	if o.Engine == nil || o.Journal == nil {
		return nil, errors.New("enforce/pause: Engine and Journal are required")
	}
	if o.Freezer == nil {
		o.Freezer = freezer.New("/proc")
	}
	if o.CallTimeout == 0 {
		o.CallTimeout = 5 * time.Second
	}
	if o.FreezeTimeout == 0 {
		o.FreezeTimeout = time.Second
	}
	if o.Attempts == 0 {
		o.Attempts = 5
	}
	if o.Late == 0 {
		o.Late = 700 * time.Millisecond
	}
	return &Enforcer{o: o}, nil
}

// Status implements enforce.Enforcer.
func (e *Enforcer) Status(ctx context.Context, id string) (enforce.Status, error) {
	s, pid, err := e.inspect(ctx, id)
	if errors.Is(err, enforce.ErrGone) && e.keeps(id) {
		return enforce.Status{Running: true, Paused: true}, nil // the engine is wrong; Unpause continues it
	}
	if err != nil {
		return enforce.Status{}, err
	}
	if state, serr := e.o.Freezer.State(id, pid); serr == nil {
		s.Verified = state == stateOf(s.Paused)
		s.Paused = s.Paused || state != freezer.Thawed
	}
	return s, nil
}

// keeps reports whether a container that is on record is to be stopped by the kernel's freezer.
func (e *Enforcer) keeps(id string) bool {
	if _, ours, err := e.o.Journal.Get(id); err == nil && !ours {
		return false
	}
	state, err := e.o.Freezer.State(id, 0)
	return err == nil && state != freezer.Thawed
}

// stateOf is the kernel's state of a container that is paused, or not.
func stateOf(paused bool) freezer.State {
	if paused {
		return freezer.Frozen
	}
	return freezer.Thawed
}

func (e *Enforcer) inspect(ctx context.Context, id string) (enforce.Status, int, error) {
	ctx, cancel := context.WithTimeout(ctx, e.o.CallTimeout)
	defer cancel()
	c, err := e.o.Engine.Inspect(ctx, id)
	if err != nil {
		return enforce.Status{}, 0, err
	}
	return enforce.Status{Running: true, Paused: c.Paused, Started: c.Started, Labels: c.Labels}, c.PID, nil
}

// Pause implements enforce.Enforcer.
func (e *Enforcer) Pause(ctx context.Context, h record.Hold) error {
	was, ours, err := e.o.Journal.Get(h.ContainerID)
	if err != nil {
		return err
	}
	s, pid, err := e.inspect(ctx, h.ContainerID)
	state := stateOf(s.Paused) // without the freezer, believe the engine
	if err == nil {
		if k, serr := e.o.Freezer.State(h.ContainerID, pid); serr == nil {
			state = k
		}
	}
	paused := s.Paused || state != freezer.Thawed
	switch {
	case errors.Is(err, enforce.ErrGone) && ours:
		return errors.Join(err, e.discard(h.ContainerID))
	case err != nil:
		return err
	case paused && !ours:
		return fmt.Errorf("container %s was paused by somebody else: %w", h.Container, enforce.ErrForeign)
	}
	if state != freezer.Frozen {
		h.LostPID = was.LostPID // until the pause has worked
	}
	if err := e.o.Journal.Put(h); err != nil || state == freezer.Frozen {
		return err // nothing has stopped, or the record was renewed
	}
	if err := e.freeze(ctx, &h, pid, paused || h.LostPID == pid); err != nil {
		return e.takeBack(h.ContainerID, err)
	}
	return e.lose(&h, 0)
}

// lose writes into the record that the engine lost track of the container with this first process;
// 0 means of none.
func (e *Enforcer) lose(h *record.Hold, pid int) error {
	if h.LostPID == pid {
		return nil
	}
	lost := *h
	lost.LostPID = pid
	_, err := e.o.Journal.Renew(lost)
	if err == nil {
		*h = lost
	}
	return err
}

// takeBack undoes a failed pause. The record stays if the container may still be stopped; the next
// holder of the record releases it.
func (e *Enforcer) takeBack(id string, cause error) error {
	if errors.Is(cause, enforce.ErrForeign) {
		return errors.Join(cause, e.o.Journal.Remove(id))
	}
	if errors.Is(cause, enforce.ErrGone) {
		return errors.Join(cause, e.discard(id))
	}
	if errors.Is(cause, enforce.ErrUnavailable) {
		// The engine may still carry out the pause: without a record nobody would undo it.
		return fmt.Errorf("%w (it stays on record until it is known whether it worked)", cause)
	}
	// Not the caller's context: it may have ended, and this must be tried all the same.
	ctx, cancel := context.WithTimeout(context.Background(), 2*e.o.CallTimeout)
	defer cancel()
	if err := e.Unpause(ctx, id); err != nil {
		return fmt.Errorf("%w (releasing it again failed too, it stays on record: %w)", cause, err)
	}
	return cause
}

// freeze calls pause until engine and kernel agree that the container is stopped. The record exists
// already. ours says that a pause found here may be our own.
func (e *Enforcer) freeze(ctx context.Context, h *record.Hold, pid int, ours bool) error {
	id := h.ContainerID
	return e.retry(ctx, func() (bool, error) {
		err := e.call(ctx, id, e.o.Engine.Pause)
		switch {
		case err == nil:
		case errors.Is(err, ErrAlready):
			// Under load the engine answers this for a running container. Or somebody else was faster.
			state, serr := e.o.Freezer.State(id, pid)
			if stops := serr != nil || state != freezer.Thawed; stops && !ours {
				return true, fmt.Errorf("somebody else paused it at the same time: %w", enforce.ErrForeign)
			} else if stops {
				return e.settled(ctx, id, pid, true)
			}
			if err := e.call(ctx, id, e.o.Engine.Unpause); errors.Is(err, ErrLostTrack) { // it should have corrected what the engine believes
				return true, e.override(id, pid, true)
			}
			return false, fmt.Errorf("the engine says paused, the kernel says it runs")
		case errors.Is(err, ErrLostTrack):
			if err := e.override(id, pid, true); err != nil {
				return false, errors.Join(err, e.lose(h, pid))
			}
		default:
			ours = ours || errors.Is(err, enforce.ErrUnavailable) // it may have worked
			return errors.Is(err, enforce.ErrGone), err
		}
		ours = true
		return e.settled(ctx, id, pid, true)
	})
}

// Unpause implements enforce.Enforcer.
func (e *Enforcer) Unpause(ctx context.Context, id string) error {
	h, ours, err := e.o.Journal.Get(id)
	if err == nil && !ours {
		return fmt.Errorf("container %.12s is not on record: %w", id, enforce.ErrForeign)
	} // a record that cannot be read counts as a record
	pid, err := e.stopped(ctx, id, h.LostPID)
	if err == nil && pid != 0 {
		err = e.thaw(ctx, id, pid)
	}
	switch {
	case errors.Is(err, enforce.ErrGone):
		return e.discard(id)
	case err != nil:
		return err
	}
	return e.o.Journal.Remove(id)
}

// discard removes the record of a container that the engine says is gone. If the kernel has stopped
// it, or is about to, the engine is wrong, and discard thaws it first. A group that is left without
// processes is thawed too, where that is possible: runc starts no container in a frozen one.
func (e *Enforcer) discard(id string) error {
	state, err := e.o.Freezer.State(id, 0)
	if err != nil {
		return e.o.Journal.Remove(id)
	}
	if err := e.o.Freezer.Set(id, 0, false); err != nil && state != freezer.Thawed {
		return fmt.Errorf("the engine says that container %.12s is gone, the kernel has stopped it, and the freezer cannot be set "+
			"(run Laxity with write access to /sys/fs/cgroup): %w", id, err)
	}
	return e.o.Journal.Remove(id)
}

// stopped returns the first process of a recorded container that is stopped, or is about to be. It
// returns 0 once it saw the container run for Late, by a look that began then. The writer of the
// record may have died between its request and the engine's work on it: removing the record in
// between would leave the container stopped for ever. The age of the record does not matter, since
// an engine may be slow. Of a container whose first process is lost, only the kernel can tell that it
// runs.
func (e *Enforcer) stopped(ctx context.Context, id string, lost int) (pid int, err error) {
	var first time.Time // when the engine first answered
	for {
		looked := time.Now()
		s, pid, err := e.inspect(ctx, id)
		if err != nil {
			return 0, err
		}
		state, serr := e.o.Freezer.State(id, pid)
		if s.Paused || (serr == nil && state != freezer.Thawed) {
			return pid, nil
		}
		if serr != nil && lost != 0 && pid == lost {
			return 0, fmt.Errorf("neither engine nor kernel tells whether it runs (run Laxity with access to the host's /sys/fs/cgroup, "+
				"or restart the container): %w: %w", ErrLostTrack, serr)
		}
		if first.IsZero() {
			first = time.Now()
		}
		if looked.Sub(first) >= e.o.Late {
			return 0, nil
		}
		e.waits.Add(1)
		if err := enforce.Sleep(ctx, 20*time.Millisecond); err != nil {
			return 0, err
		}
	}
}

func (e *Enforcer) thaw(ctx context.Context, id string, pid int) error {
	return e.retry(ctx, func() (bool, error) {
		err := e.call(ctx, id, e.o.Engine.Unpause)
		switch {
		case err == nil:
		case errors.Is(err, ErrAlready):
			if state, serr := e.o.Freezer.State(id, pid); serr != nil || state == freezer.Thawed {
				return true, nil //nolint:nilerr // it runs, as it should
			}
			// The engine takes it to run, and never unpauses it.
			if err := e.override(id, pid, false); err != nil {
				// It does once it takes it to be paused.
				return false, errors.Join(err, e.call(ctx, id, e.o.Engine.Pause))
			}
		case errors.Is(err, ErrLostTrack):
			// The engine takes it to be paused and it runs: the engine can only unpause what is frozen.
			if err := e.override(id, pid, true); err != nil {
				return false, err
			}
			return false, fmt.Errorf("the engine says paused, the kernel says it runs")
		default:
			return errors.Is(err, enforce.ErrGone), err
		}
		return e.settled(ctx, id, pid, false)
	})
}

// override sets the kernel's freezer where the engine cannot pause or unpause any more.
func (e *Enforcer) override(id string, pid int, frozen bool) error {
	if err := e.o.Freezer.Set(id, pid, frozen); err != nil {
		return fmt.Errorf("%w (it was killed during a pause, or somebody set the freezer), and the kernel's freezer cannot be set "+
			"(run Laxity with write access to /sys/fs/cgroup, or restart the container): %w", ErrLostTrack, err)
	}
	return nil
}

// settled waits until the kernel does what we asked of the engine. Without a readable freezer it
// believes the engine. If the engine says the opposite by then, somebody else has asked for that,
// and we do not overrule them.
func (e *Enforcer) settled(ctx context.Context, id string, pid int, want bool) (bool, error) {
	deadline := time.Now().Add(e.o.FreezeTimeout)
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		state, err := e.o.Freezer.State(id, pid)
		if err != nil {
			_, _, err = e.inspect(ctx, id) // gone, perhaps
			return true, err
		}
		if state == stateOf(want) {
			return true, nil
		}
		if time.Now().After(deadline) {
			if s, _, err := e.inspect(ctx, id); err == nil && s.Paused != want && (state == freezer.Thawed) == want {
				return true, nil
			}
			return false, fmt.Errorf("the kernel's freezer did not follow the engine within %v", e.o.FreezeTimeout)
		}
		if err := enforce.Sleep(ctx, wait); err != nil {
			return true, err
		}
	}
}

// retry calls try until it returns done, at most Attempts times.
func (e *Enforcer) retry(ctx context.Context, try func() (done bool, err error)) error {
	wait := 10 * time.Millisecond
	for i := 1; ; i++ {
		done, err := try()
		switch {
		case done || err == nil:
			return err
		case i >= e.o.Attempts:
			return fmt.Errorf("after %d attempts: %w", i, err)
		}
		if serr := enforce.Sleep(ctx, wait); serr != nil {
			return errors.Join(err, serr)
		}
		wait *= 2
	}
}

// Calls implements enforce.Enforcer.
func (e *Enforcer) Calls() uint64 { return e.calls.Load() }

// Waits returns how often a release found its container running so far, and waited in case a pause
// that was asked for is late.
func (e *Enforcer) Waits() uint64 { return e.waits.Load() }

func (e *Enforcer) call(ctx context.Context, id string, f func(context.Context, string) error) error {
	e.calls.Add(1)
	ctx, cancel := context.WithTimeout(ctx, e.o.CallTimeout)
	defer cancel()
	return f(ctx, id)
}
