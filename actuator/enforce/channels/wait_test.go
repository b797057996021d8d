package channels_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/actuator/enforce/channels/channelstest"
	"github.com/laxity/laxity/internal/rm"
)

// A driver that hangs for one process delays neither the caller nor the others.
func TestHungCallDelaysNobody(t *testing.T) {
	r := newRig(t, channels.Options{})
	hung, other := r.Start(1, gpuNames[0]), r.Start(2, gpuNames[0])
	for _, p := range []rm.Process{hung, other} {
		_, err := r.Apply(t.Context(), target(p), channels.Standing{})
		check(t, err, nil)
	}
	began, release := make(chan struct{}), make(chan struct{})
	var first = true
	r.driver.Before = func(_ context.Context, call string) error {
		if call == "switch" && first {
			first = false
			close(began)
			<-release // whatever its context says
		}
		return nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { _, err := r.Apply(ctx, target(hung), takeOff); done <- err }()
	<-began
	cancel()
	check(t, <-done, context.Canceled)
	_, err := r.Apply(t.Context(), target(other), takeOff)
	check(t, err, nil)
	r.SetDeadline(50 * time.Millisecond)
	left, err := r.RestoreAll(t.Context())
	for range 100 { // on a machine that stalls the other one may need more
		if left <= 1 {
			break
		}
		left, err = r.RestoreAll(t.Context())
	}
	check(t, err, context.DeadlineExceeded)
	if left != 1 || r.Off(other) != 0 {
		t.Errorf("%d left, %d channels of the other are off", left, r.Off(other))
	}
	close(release)
	for left, err = r.RestoreAll(t.Context()); left != 0; left, err = r.RestoreAll(t.Context()) {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	}
	if n := r.Off(hung); n != 0 {
		t.Errorf("%d channels are off", n)
	}
}

// The search for the groups of an old process outlasts its callers, and is made once.
func TestLongSearchEndsOnce(t *testing.T) {
	r := newRig(t, channels.Options{})
	p := r.Start(1, gpuNames[0])
	began, release := make(chan struct{}), make(chan struct{})
	r.driver.Before = func(ctx context.Context, call string) error {
		if call == "find" {
			close(began) // a second one would panic
			<-release
			return ctx.Err()
		}
		return nil
	}
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		_, err := r.Apply(ctx, target(p), takeOff)
		check(t, err, context.DeadlineExceeded)
		cancel()
	}
	<-began
	close(release)
	_, err := r.Apply(t.Context(), target(p), takeOff)
	check(t, err, nil)
	if n := r.Off(p); n != 8 {
		t.Errorf("%d channels are off", n)
	}
}

// Actuator and guardian act on the same processes at the same time, as two programs do.
func TestManyAtOnce(t *testing.T) {
	m, dir := channelstest.NewMachine(), t.TempDir()
	var processes []rm.Process
	for pid := 1; pid <= 3; pid++ {
		processes = append(processes, m.Start(pid, gpuNames[0]))
	}
	var all []*channels.Enforcer
	for range 2 {
		e, err := channels.New(channels.Options{Driver: m, Dir: dir, State: m.State, Settle: time.Nanosecond,
			MaxOff: time.Millisecond, Deadline: time.Minute, After: neverEnds})
		check(t, err, nil)
		all = append(all, e)
	}
	var wait sync.WaitGroup
	for n := range 6 {
		wait.Go(func() {
			random := rand.New(rand.NewPCG(uint64(n), 0)) //nolint:gosec // not a secret
			for range 200 {
				e, p := all[n%2], processes[random.IntN(len(processes))]
				var err error
				switch random.IntN(5) {
				case 0:
					_, err = e.Apply(t.Context(), target(p), takeOff)
				case 1:
					_, err = e.Inspect(t.Context(), target(p), channels.Standing{Slice: time.Duration(1+random.IntN(9)) * time.Millisecond})
				case 2:
					_, err = e.Apply(t.Context(), target(p), channels.Standing{})
				case 3:
					_, err = e.Sweep(t.Context(), 0)
				default:
					err = e.Restore(t.Context(), p)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	if left, err := all[0].RestoreAll(t.Context()); left != 0 || err != nil {
		t.Fatalf("%d left, %v", left, err)
	}
	for _, p := range processes {
		if n, s := m.Off(p), m.Slices(p); n != 0 || s[0] != channelstest.OwnSlice {
			t.Errorf("%d channels are off, slices %v", n, s)
		}
	}
}
