// Package selftest tests whether package rm's controls work with this driver on a card. A helper
// process of our own runs a tiny kernel; the test switches its channels off and on, and sets its
// slice. It imports internal/replace, internal/rm, golang.org/x/sys and the standard library.
package selftest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/laxity/laxity/internal/rm"
)

// MinFree is the memory that must be free on a card: a context takes some 0.5 GiB of it.
const MinFree = 2 << 30

// What one test may use of a card. All of its kernels together run for at most 100 ms.
const (
	switchTime = 40 * time.Millisecond // of the kernel that is switched
	sharesTime = 60 * time.Millisecond // of the two kernels whose slices differ
	standsFor  = 10 * time.Millisecond // how long the counter must stand
	within     = 25 * time.Millisecond // of a call's begin, until the counter stands or moves
	look       = 100 * time.Microsecond
)

// The slices of the two kernels, and the part of the time that the first must get: a quarter less
// than its slice would give, since a switch and the first slice take time.
const (
	longSlice  = 8 * time.Millisecond
	shortSlice = time.Millisecond
	minPart    = 0.65
)

// Card is a GPU, or a MIG instance, as its caller sees it.
type Card struct {
	UUID string
	// Free is its free memory in bytes; 0 is unknown, and then nothing is tested.
	Free uint64
	// Exclusive says that its compute mode is not the default: we must not make a second context.
	Exclusive bool
}

// Subject is a helper process with a context on the card, and a kernel that increments a counter.
// *Helper is one on a real GPU.
type Subject interface {
	Process() rm.Process
	// Launch starts the kernel, which ends by itself after most.
	Launch(most time.Duration) error
	// Beat returns the kernel's counter.
	Beat() uint32
	// Finish stops the kernel and waits for its end. An error says that its result is wrong.
	Finish(ctx context.Context) error
	// Close ends the process, and waits until it is gone.
	Close()
}

// Result of a test.
type Result struct {
	Driver string    `json:"driver"`
	GPU    string    `json:"gpu"`
	At     time.Time `json:"at"`
	// Switch: channels go off and on. Slices: they divide the card's time as they must.
	Switch bool `json:"switch"`
	Slices bool `json:"slices"`
	// Reason says why one of them is not proven, for people.
	Reason string `json:"reason,omitempty"`
	// Off and On are the times from the start of the call to the counter's last or first beat.
	Off time.Duration `json:"off_ns,omitempty"`
	On  time.Duration `json:"on_ns,omitempty"`
	// Part of the time that the first of two kernels got, with slices of 8 : 1 ms.
	Part float64 `json:"part,omitempty"`
}

// Run tests card with subjects that start makes, and ends all of them before it returns. If the
// circumstances forbid a test, it returns ErrUntested with the reason: try again later. Every other
// outcome is a Result to remember. If package rm does not know the driver, m must name it in
// Options.Proven: this test is the proof.
func Run(ctx context.Context, m *rm.Manager, driver string, card Card, start func(context.Context) (Subject, error)) (Result, error) {
	r := Result{Driver: driver, GPU: card.UUID, At: time.Now().UTC()}
	switch {
	case card.Free == 0:
		return r, fmt.Errorf("%w: its free memory is not known", ErrUntested)
	case card.Free < MinFree:
		return r, fmt.Errorf("%w: %d MiB are free, and %d are needed", ErrUntested, card.Free>>20, uint64(MinFree)>>20)
	case card.Exclusive:
		return r, fmt.Errorf("%w: its compute mode is not the default", ErrUntested)
	}
	if err := m.Mark(ctx); err != nil { // so that the search finds the helpers at once
		if errors.Is(err, rm.ErrUnsupported) {
			r.Reason = err.Error()
			return r, nil
		}
		return r, fmt.Errorf("%w: %w", ErrUntested, err)
	}
	time.Sleep(30 * time.Millisecond) // start times have steps of 10 ms
	var subjects []Subject
	var groups [][]rm.Group
	for range 2 {
		s, err := start(ctx)
		if err != nil {
			return r, fmt.Errorf("%w: %w", ErrUntested, err)
		}
		defer s.Close()
		found, err := m.Find(ctx, s.Process())
		if ctx.Err() != nil {
			return r, fmt.Errorf("%w: %w", ErrUntested, ctx.Err())
		}
		if err != nil && !errors.Is(err, rm.ErrUnfinished) || len(found) == 0 {
			r.Reason = fmt.Sprintf("the channel groups of a process of our own are not found: %v", orNone(err))
			return r, nil
		}
		subjects, groups = append(subjects, s), append(groups, found)
	}
	if err := r.switches(ctx, m, subjects[0], groups[0]); err != nil {
		return r.failed(ctx, "channels off and on", err)
	}
	if err := r.shares(ctx, m, subjects, groups); err != nil {
		return r.failed(ctx, "slices", err)
	}
	return r, nil
}

// ErrUntested says that a card was not tested, and why.
var ErrUntested = errors.New("the card was not tested")

func orNone(err error) error {
	if err == nil {
		return errors.New("it has none")
	}
	return err
}

func (r *Result) failed(ctx context.Context, what string, err error) (Result, error) {
	if ctx.Err() != nil { // the caller gave up: that says nothing about the card
		return *r, fmt.Errorf("%w: %w", ErrUntested, ctx.Err())
	}
	if errors.Is(err, ErrUntested) {
		return *r, fmt.Errorf("%s: %w", what, err)
	}
	r.Reason = fmt.Sprintf("%s: %v", what, err)
	return *r, nil
}

// switches takes a running kernel off and lets it continue.
func (r *Result) switches(ctx context.Context, m *rm.Manager, s Subject, groups []rm.Group) (err error) {
	if err := s.Launch(switchTime); err != nil {
		return err
	}
	if _, err := awaitBeat(ctx, s, 0, time.Now()); err != nil {
		return fmt.Errorf("%w: others keep the card: %w", ErrUntested, err)
	}
	began := time.Now()
	if err := m.Switch(ctx, groups, false); err != nil {
		return err
	}
	stood, off, err := awaitStill(ctx, s, began)
	on := time.Now()
	if back := m.Switch(context.WithoutCancel(ctx), groups, true); back != nil {
		return errors.Join(err, back)
	}
	if err != nil {
		return err
	}
	r.Off = off
	if r.On, err = awaitBeat(ctx, s, stood, on); err != nil {
		return fmt.Errorf("it does not run again: %w", err)
	}
	if err := s.Finish(ctx); err != nil {
		return fmt.Errorf("after off and on: %w", err)
	}
	r.Switch = true
	return nil
}

// awaitBeat waits until the counter is not last, and returns how long after began that was.
func awaitBeat(ctx context.Context, s Subject, last uint32, began time.Time) (time.Duration, error) {
	for {
		if s.Beat() != last {
			return time.Since(began), nil
		}
		if time.Since(began) > within {
			return 0, fmt.Errorf("its counter stood at %d for %v", last, within)
		}
		if err := pause(ctx, look); err != nil {
			return 0, err
		}
	}
}

// awaitStill waits until the counter does not move for standsFor, and returns when it last moved.
func awaitStill(ctx context.Context, s Subject, began time.Time) (beat uint32, moved time.Duration, err error) {
	last, at := s.Beat(), time.Now()
	for time.Since(at) < standsFor {
		if err := pause(ctx, look); err != nil {
			return 0, 0, err
		}
		if now := s.Beat(); now != last {
			last, at = now, time.Now()
		}
		if at.Sub(began) > within {
			return 0, 0, fmt.Errorf("the kernel ran on %v after it was switched off", at.Sub(began))
		}
	}
	return last, at.Sub(began), nil
}

// shares runs two kernels whose slices are 8 : 1, and compares what they got.
func (r *Result) shares(ctx context.Context, m *rm.Manager, s []Subject, groups [][]rm.Group) error {
	for i, slice := range []time.Duration{longSlice, shortSlice} {
		for _, g := range groups[i] {
			if err := m.SetSlice(ctx, g, slice); err != nil {
				return err
			}
			got, err := m.Slice(ctx, g)
			if err != nil {
				return err
			}
			if got != slice {
				return fmt.Errorf("%v was set, and %v is read back", slice, got)
			}
		}
	}
	for _, one := range s {
		if err := one.Launch(sharesTime); err != nil {
			return err
		}
	}
	began := time.Now()
	for _, one := range s {
		if _, err := awaitBeat(ctx, one, 0, began); err != nil {
			return fmt.Errorf("%w: others keep the card: %w", ErrUntested, err)
		}
	}
	first, second := s[0].Beat(), s[1].Beat()
	if err := pause(ctx, sharesTime-time.Since(began)-standsFor); err != nil {
		return err
	}
	a, b := s[0].Beat()-first, s[1].Beat()-second
	for _, one := range s {
		if err := one.Finish(ctx); err != nil {
			return err
		}
	}
	if a+b == 0 {
		return errors.New("neither of two kernels ran")
	}
	if r.Part = float64(a) / (float64(a) + float64(b)); r.Part < minPart {
		return fmt.Errorf("slices of %v and %v gave the first %.0f %% of the time", longSlice, shortSlice, 100*r.Part)
	}
	r.Slices = true
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
