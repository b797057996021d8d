package enforcetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/record"
)

// Subject is an enforcer with an engine on which the suite can act as a person
// would.
type Subject struct {
	Enforcer enforce.Enforcer
	Journal  *journal.Journal
	// Run starts a container and returns its id.
	Run func(t *testing.T) string
	// Remove removes it, paused or not.
	Remove func(t *testing.T, id string)
	// SetPaused pauses or unpauses it behind the enforcer's back.
	SetPaused func(t *testing.T, id string, paused bool)
	// Stopped reports what the kernel says.
	Stopped func(t *testing.T, id string) bool
}

// Run runs the suite. fresh is called once for each test.
func Run(t *testing.T, fresh func(t *testing.T) Subject) {
	for name, test := range map[string]func(*testing.T, Subject){
		"pause and unpause":        pauseAndUnpause,
		"twice is once":            twice,
		"a person's pause":         personsPause,
		"a person's unpause":       personsUnpause,
		"gone before the pause":    goneBefore,
		"gone while paused":        goneWhile,
		"nothing without a record": noRecord,
		"crash before the pause":   crashBefore,
		"a pause that comes late":  latePause,
		"many at once":             many,
	} {
		t.Run(name, func(t *testing.T) { test(t, fresh(t)) })
	}
}

func ctxOf(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// HoldOf makes a hold of a container as the actuator does.
func HoldOf(id string) record.Hold {
	now := time.Now()
	return record.Hold{ContainerID: id, Container: "name", Cause: "arbitrate", Reason: "test",
		Since: now, Expires: now.Add(time.Minute), Until: now.Add(time.Hour)}
}

func (s Subject) expect(t *testing.T, id string, stopped, recorded bool) {
	t.Helper()
	if got := s.Stopped(t, id); got != stopped {
		t.Errorf("the kernel says stopped = %v, want %v", got, stopped)
	}
	if _, got, err := s.Journal.Get(id); got != recorded || err != nil {
		t.Errorf("on record = %v (%v), want %v", got, err, recorded)
	}
}

func check(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) || (err != nil) != (want != nil) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

func pauseAndUnpause(t *testing.T, s Subject) {
	id := s.Run(t)
	check(t, s.Enforcer.Pause(ctxOf(t), HoldOf(id)), nil)
	s.expect(t, id, true, true)
	if st, err := s.Enforcer.Status(ctxOf(t), id); err != nil || !st.Running || !st.Paused || !st.Verified {
		t.Errorf("status %+v %v", st, err)
	}
	check(t, s.Enforcer.Unpause(ctxOf(t), id), nil)
	s.expect(t, id, false, false)
	s.awaitRuns(t, id)
}

func twice(t *testing.T, s Subject) {
	id := s.Run(t)
	check(t, s.Enforcer.Pause(ctxOf(t), HoldOf(id)), nil)
	again := HoldOf(id)
	again.Reason = "renewed"
	check(t, s.Enforcer.Pause(ctxOf(t), again), nil)
	s.expect(t, id, true, true)
	if h, _, _ := s.Journal.Get(id); h.Reason != "renewed" {
		t.Errorf("the record was not renewed: %+v", h)
	}
	check(t, s.Enforcer.Unpause(ctxOf(t), id), nil)
	check(t, s.Enforcer.Unpause(ctxOf(t), id), enforce.ErrForeign)
	s.expect(t, id, false, false)
}

func personsPause(t *testing.T, s Subject) {
	id := s.Run(t)
	s.SetPaused(t, id, true)
	check(t, s.Enforcer.Pause(ctxOf(t), HoldOf(id)), enforce.ErrForeign)
	s.expect(t, id, true, false)
	check(t, s.Enforcer.Unpause(ctxOf(t), id), enforce.ErrForeign)
	s.expect(t, id, true, false)
}

func personsUnpause(t *testing.T, s Subject) {
	id := s.Run(t)
	check(t, s.Enforcer.Pause(ctxOf(t), HoldOf(id)), nil)
	s.SetPaused(t, id, false)
	s.awaitRuns(t, id)
	check(t, s.Enforcer.Unpause(ctxOf(t), id), nil)
	s.expect(t, id, false, false)
}

// awaitRuns waits until the engine says so. Docker handles containerd's event of a pause on its own
// time: one that comes after the unpause makes it say "paused" until the event of that follows.
func (s Subject) awaitRuns(t *testing.T, id string) {
	t.Helper()
	for limit := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		st, err := s.Enforcer.Status(ctxOf(t), id)
		if check(t, err, nil); st.Running && !st.Paused && st.Verified {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("status %+v", st)
		}
	}
}

func goneBefore(t *testing.T, s Subject) {
	id := s.Run(t)
	s.Remove(t, id)
	check(t, s.Enforcer.Pause(ctxOf(t), HoldOf(id)), enforce.ErrGone)
	if _, recorded, _ := s.Journal.Get(id); recorded {
		t.Error("a container that is gone is on record")
	}
	_, err := s.Enforcer.Status(ctxOf(t), id)
	check(t, err, enforce.ErrGone)
}

func goneWhile(t *testing.T, s Subject) {
	id := s.Run(t)
	check(t, s.Enforcer.Pause(ctxOf(t), HoldOf(id)), nil)
	s.Remove(t, id)
	check(t, s.Enforcer.Unpause(ctxOf(t), id), nil)
	if _, recorded, _ := s.Journal.Get(id); recorded {
		t.Error("a container that is gone is on record")
	}
}

func noRecord(t *testing.T, s Subject) {
	id := s.Run(t)
	check(t, s.Enforcer.Unpause(ctxOf(t), id), enforce.ErrForeign)
	s.expect(t, id, false, false)
}

// A record from before a crash, of a container that never came to be paused.
func crashBefore(t *testing.T, s Subject) {
	id := s.Run(t)
	if err := s.Journal.Put(HoldOf(id)); err != nil {
		t.Fatal(err)
	}
	check(t, s.Enforcer.Unpause(ctxOf(t), id), nil)
	s.expect(t, id, false, false)
}

// Whoever asked for the pause died, long after it wrote the record, and the engine
// carries it out when others released the container already.
func latePause(t *testing.T, s Subject) {
	// An enforcer waits 0.7 s for the pause (pause.Options.Late). On a busy machine the engine may
	// need longer than that: such a pause shows nothing, and is tried again.
	const inTime, tries = 500 * time.Millisecond, 20
	id := s.Run(t)
	for range tries {
		h := HoldOf(id)
		h.Since = h.Since.Add(-time.Minute)
		if err := s.Journal.Put(h); err != nil {
			t.Fatal(err)
		}
		before := s.waits(t)
		began := time.Now()
		done := make(chan error, 1)
		go func() { done <- s.Enforcer.Unpause(ctxOf(t), id) }()
		for limit := began.Add(30 * time.Second); s.waits(t) == before; time.Sleep(time.Millisecond) { // until it saw the container run
			if time.Now().After(limit) {
				t.Fatal("the release never found the container running")
			}
		}
		s.SetPaused(t, id, true)
		took := time.Since(began)
		check(t, <-done, nil)
		if took < inTime || !s.Stopped(t, id) {
			s.expect(t, id, false, false)
			return
		}
		t.Logf("the engine paused it only after %v: once more", took.Round(time.Millisecond))
		s.SetPaused(t, id, false)
		s.awaitRuns(t, id)
	}
	t.Fatalf("in %d tries the engine never paused it within %v", tries, inTime)
}

// waits is how often releases have waited for a late pause so far.
func (s Subject) waits(t *testing.T) uint64 {
	t.Helper()
	e, ok := s.Enforcer.(interface{ Waits() uint64 })
	if !ok {
		t.Fatal("the enforcer does not tell when it waits for a late pause (pause.Enforcer does)")
	}
	return e.Waits()
}

func many(t *testing.T, s Subject) {
	ids := []string{s.Run(t), s.Run(t), s.Run(t)}
	for _, step := range []func(id string) error{
		func(id string) error { return s.Enforcer.Pause(ctxOf(t), HoldOf(id)) },
		func(id string) error { return s.Enforcer.Unpause(ctxOf(t), id) },
	} {
		errs := make(chan error, len(ids))
		for _, id := range ids {
			go func() { errs <- step(id) }()
		}
		for range ids {
			check(t, <-errs, nil)
		}
	}
	for _, id := range ids {
		s.expect(t, id, false, false)
	}
}
