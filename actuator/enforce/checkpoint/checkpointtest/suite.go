package checkpointtest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/enforce"
)

// Subject is a Swapper and the machine that it acts on.
type Subject struct {
	Swapper enforce.Swapper
	// Run starts a container that computes on a GPU and holds some memory.
	Run func(t *testing.T) (id string)
	// Computes fails the test unless the container goes on computing, correctly.
	Computes func(t *testing.T, id string)
	// Holds is how much GPU memory it holds, and Frozen what the kernel says.
	Holds  func(t *testing.T, id string) uint64
	Frozen func(t *testing.T, id string) bool
	// SetPaused pauses and unpauses as a person would; Remove removes the container.
	SetPaused func(t *testing.T, id string, paused bool)
	Remove    func(t *testing.T, id string)
	// Fill takes all the memory that is free on the GPU, until release.
	Fill func(t *testing.T) (release func())
}

// Run runs the suite; fresh makes a machine that nobody else uses.
func Run(t *testing.T, fresh func(t *testing.T) Subject) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, Subject)
	}{
		{"suspend and resume", suspendAndResume},
		{"twice is once", twice},
		{"two containers take turns", takeTurns},
		{"a person's pause", personsPause},
		{"a person's unpause", personsUnpause},
		{"gone before", goneBefore},
		{"gone while suspended", goneWhile},
		{"no room", noRoom},
		{"room is refused", roomRefused},
		{"not on record", notOnRecord},
		{"many calls at once", atOnce},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, fresh(t)) })
	}
}

func check(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) || (err != nil) != (want != nil) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

func (s Subject) suspend(t *testing.T, id string) (enforce.SwapResult, error) {
	return s.Swapper.Suspend(t.Context(), id, "name", "test")
}

func (s Subject) resume(t *testing.T, id string) error {
	_, err := s.Swapper.Resume(t.Context(), id, nil)
	return err
}

func (s Subject) recorded(t *testing.T, id string) bool {
	t.Helper()
	all, err := s.Swapper.Swapped()
	check(t, err, nil)
	return slices.ContainsFunc(all, func(r enforce.Swapped) bool { return r.ContainerID == id })
}

// expect checks what is true of a container that is suspended, or is not.
func (s Subject) expect(t *testing.T, id string, suspended bool) {
	t.Helper()
	if got := s.recorded(t, id); got != suspended {
		t.Errorf("on record = %v, want %v", got, suspended)
	}
	if got := s.Frozen(t, id); got != suspended {
		t.Errorf("frozen = %v, want %v", got, suspended)
	}
	if held := s.Holds(t, id); (held == 0) != suspended {
		t.Errorf("it holds %d bytes of GPU memory, suspended = %v", held, suspended)
	}
	if !suspended {
		s.Computes(t, id)
	}
}

func suspendAndResume(t *testing.T, s Subject) {
	id := s.Run(t)
	check(t, s.Swapper.Can(t.Context(), id), nil)
	held := s.Holds(t, id)
	r, err := s.suspend(t, id)
	check(t, err, nil)
	if r.Processes < 1 || len(r.Bytes) != 1 {
		t.Errorf("result %+v", r)
	}
	for uuid, bytes := range r.Bytes {
		if bytes != held {
			t.Errorf("%s: %d bytes, want %d", uuid, bytes, held)
		}
	}
	s.expect(t, id, true)
	check(t, s.Swapper.Can(t.Context(), id), enforce.ErrCannotSwap)
	check(t, s.resume(t, id), nil)
	s.expect(t, id, false)
	check(t, s.Swapper.Can(t.Context(), id), nil)
}

func twice(t *testing.T, s Subject) {
	id := s.Run(t)
	for range 2 {
		_, err := s.suspend(t, id)
		check(t, err, nil)
		s.expect(t, id, true)
	}
	check(t, s.resume(t, id), nil)
	check(t, s.resume(t, id), enforce.ErrForeign)
	s.expect(t, id, false)
}

func takeTurns(t *testing.T, s Subject) {
	a, b := s.Run(t), s.Run(t)
	_, err := s.suspend(t, a)
	check(t, err, nil)
	for range 3 {
		_, err := s.suspend(t, b)
		check(t, err, nil)
		check(t, s.resume(t, a), nil)
		s.expect(t, a, false)
		s.expect(t, b, true)
		a, b = b, a
	}
	check(t, s.resume(t, a), nil)
	s.expect(t, a, false)
}

func personsPause(t *testing.T, s Subject) {
	id := s.Run(t)
	s.SetPaused(t, id, true)
	check(t, s.Swapper.Can(t.Context(), id), enforce.ErrForeign)
	_, err := s.suspend(t, id)
	check(t, err, enforce.ErrForeign)
	if !s.Frozen(t, id) || s.recorded(t, id) {
		t.Error("a person's pause was touched")
	}
	s.SetPaused(t, id, false)
	s.expect(t, id, false)
}

func personsUnpause(t *testing.T, s Subject) {
	id := s.Run(t)
	_, err := s.suspend(t, id)
	check(t, err, nil)
	s.SetPaused(t, id, false)
	check(t, s.resume(t, id), nil)
	s.expect(t, id, false)
}

func goneBefore(t *testing.T, s Subject) {
	id := s.Run(t)
	s.Remove(t, id)
	_, err := s.suspend(t, id)
	check(t, err, enforce.ErrGone)
	if s.recorded(t, id) {
		t.Error("a container that is gone is on record")
	}
}

func goneWhile(t *testing.T, s Subject) {
	id := s.Run(t)
	_, err := s.suspend(t, id)
	check(t, err, nil)
	s.Remove(t, id)
	check(t, s.resume(t, id), nil)
	if s.recorded(t, id) {
		t.Error("a container that is gone is on record")
	}
}

func noRoom(t *testing.T, s Subject) {
	id := s.Run(t)
	_, err := s.suspend(t, id)
	check(t, err, nil)
	release := s.Fill(t)
	check(t, s.resume(t, id), enforce.ErrNoRoom)
	s.expect(t, id, true)
	release()
	check(t, s.resume(t, id), nil)
	s.expect(t, id, false)
}

func roomRefused(t *testing.T, s Subject) {
	id := s.Run(t)
	r, err := s.suspend(t, id)
	check(t, err, nil)
	no := errors.New("kept for another one")
	_, err = s.Swapper.Resume(t.Context(), id, func(need map[string]uint64) error {
		for uuid, bytes := range r.Bytes {
			if need[uuid] != bytes {
				t.Errorf("asked for %v, want %v", need, r.Bytes)
			}
		}
		return no
	})
	check(t, err, no)
	check(t, err, enforce.ErrNoRoom)
	s.expect(t, id, true)
	check(t, s.resume(t, id), nil)
	s.expect(t, id, false)
}

func notOnRecord(t *testing.T, s Subject) {
	id := s.Run(t)
	check(t, s.resume(t, id), enforce.ErrForeign)
	s.expect(t, id, false)
}

// Calls that come at once exclude each other, and the container is whole at the end.
func atOnce(t *testing.T, s Subject) {
	id := s.Run(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const callers = 8
	errs := make(chan error, callers)
	for i := range callers {
		go func() {
			var err error
			for range 5 {
				if i%2 == 0 {
					_, err = s.Swapper.Suspend(ctx, id, "name", "test")
				} else {
					_, err = s.Swapper.Resume(ctx, id, nil)
				}
				if err != nil && !errors.Is(err, enforce.ErrBusy) && !errors.Is(err, enforce.ErrForeign) {
					break
				}
				err = nil
			}
			errs <- err
		}()
	}
	for range callers {
		check(t, <-errs, nil)
	}
	if s.recorded(t, id) {
		check(t, s.resume(t, id), nil)
	}
	s.expect(t, id, false)
}
