package cudaprobe

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// An attempt that hangs is given up, and no more than mostLate threads of ours wait so: one for each process.
func TestAttemptsThatHangAreGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var as attempts
		release := make(chan struct{})
		hang := func(*attempt) error { <-release; return nil }
		at := func(pid int, do func(*attempt) error, want bool, within time.Duration) {
			t.Helper()
			began := time.Now()
			if err := as.run(pid, do); (err == nil) != want || time.Since(began) > within {
				t.Errorf("process %d: %v after %v", pid, err, time.Since(began))
			}
		}
		nothing := func(*attempt) error { return nil }
		for pid := range mostLate {
			at(100, nothing, true, 0)
			at(pid, hang, false, attemptWithin)
			at(pid, nothing, false, 0)
		}
		at(100, nothing, false, 0)
		close(release)
		synctest.Wait()
		at(0, nothing, true, 0)
		at(100, nothing, true, 0)
	})
}

// An attempt that was given up changes nothing. One that has changed something is not given up: its caller
// would believe that nothing changed.
func TestLateAttemptChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var as attempts
		changes := 0
		change := func() error { changes++; return nil }
		ended := make(chan error, 1)
		if err := as.run(1, func(a *attempt) error {
			time.Sleep(2 * attemptWithin)
			err := a.change(change)
			ended <- err
			return err
		}); err == nil {
			t.Error("it was not given up")
		}
		if err := <-ended; !errors.Is(err, errLate) || changes != 0 {
			t.Errorf("%v, %d changes", err, changes)
		}
		if err := as.run(2, func(a *attempt) error {
			defer time.Sleep(2 * attemptWithin)
			return a.change(change)
		}); err != nil || changes != 1 {
			t.Errorf("it changed something, and: %v, %d changes", err, changes)
		}
	})
}
