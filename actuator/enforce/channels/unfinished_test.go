package channels_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/actuator/enforce/channels/channelstest"
	"github.com/laxity/laxity/internal/rm"
)

// searching is a driver whose searches take several calls: it has found this many groups so
// far, and the others are found when it has ended.
type searching struct {
	channels.Driver
	has   atomic.Int64
	ended atomic.Bool
	finds atomic.Int64
}

func (s *searching) Find(ctx context.Context, p rm.Process) ([]rm.Group, error) {
	s.finds.Add(1)
	list, err := s.Driver.Find(ctx, p)
	if err != nil || s.ended.Load() {
		return list, err
	}
	return list[:s.has.Load()], rm.ErrUnfinished
}

// searchRig is a rig with a process that has two groups.
func searchRig(t *testing.T) (*rig, *searching, rm.Process) {
	t.Helper()
	r := newRig(t, channels.Options{})
	s := &searching{Driver: r.Machine}
	r.driver.Driver = s
	p := r.Start(1, gpuNames[0])
	r.AddGroup(p, gpuNames[0])
	return r, s, p
}

func TestWhatAnUnfinishedSearchHasFoundCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s, p := searchRig(t)
		s.has.Store(1)
		second := channels.Standing{Slice: time.Second}
		began := time.Now()
		for range 2 { // the first one looks whether its program sets a slice
			_, err := r.Apply(t.Context(), target(p), second)
			check(t, err, nil)
		}
		if got := r.Slices(p); got[0] != time.Second || got[1] != channelstest.OwnSlice || time.Since(began) != 0 {
			t.Errorf("after %v the slices are %v", time.Since(began), got)
		}
		s.ended.Store(true)
		time.Sleep(time.Second) // the search ends by itself
		finds := s.finds.Load()
		for range 2 {
			_, err := r.Apply(t.Context(), target(p), second)
			check(t, err, nil)
		}
		if got := r.Slices(p); got[1] != time.Second || s.finds.Load() != finds {
			t.Errorf("slices %v, and %d more searches", got, s.finds.Load()-finds)
		}
	})
}

func TestNothingFoundYetIsNoGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s, p := searchRig(t)
		for _, standing := range []channels.Standing{{Slice: time.Second}, takeOff} {
			_, err := r.Apply(t.Context(), target(p), standing)
			check(t, err, channels.ErrNoGroup)
		}
		if list, err := r.Records(); len(list) > 0 || err != nil {
			t.Errorf("on record: %+v, %v", list, err)
		}
		s.ended.Store(true)
		time.Sleep(time.Second)
		_, err := r.Apply(t.Context(), target(p), takeOff)
		check(t, err, nil)
		if n := r.Off(p); n != 16 {
			t.Errorf("%d channels are off", n)
		}
		check(t, r.Restore(t.Context(), p), nil)
	})
}

// stall lets searches wait for the driver until release.
func (r *rig) stall() (release func()) {
	answered := make(chan struct{})
	r.driver.Before = func(_ context.Context, call string) error {
		if call == "find" {
			<-answered
		}
		return nil
	}
	return func() { close(answered) }
}

// A caller whose time is over before the driver has answered at all tries again soon.
func TestSearchWithoutAnAnswerIsNoGroup(t *testing.T) {
	r, s, p := searchRig(t)
	s.ended.Store(true)
	release := r.stall()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err := r.Apply(ctx, target(p), channels.Standing{Slice: time.Second})
	check(t, err, channels.ErrNoGroup)
	release()
	_, err = r.Apply(t.Context(), target(p), channels.Standing{Slice: time.Second})
	check(t, err, nil)
}

// A new actuator's search may not have found yet what is on record.
func TestUnfinishedLookForgetsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s, p := searchRig(t)
		s.ended.Store(true)
		for range 2 {
			_, err := r.Apply(t.Context(), target(p), channels.Standing{Slice: time.Second})
			check(t, err, nil)
		}
		s.ended.Store(false)
		s.has.Store(1)
		_, err := r.Inspect(t.Context(), target(p), channels.Standing{Slice: time.Second})
		check(t, err, nil)
		list, err := r.Records()
		check(t, err, nil)
		if len(list) != 1 || len(list[0].Groups) != 2 {
			t.Errorf("on record: %+v", list)
		}
		s.ended.Store(true)
		time.Sleep(time.Second)
		check(t, r.Restore(t.Context(), p), nil)
		if got := r.Slices(p); got[0] != channelstest.OwnSlice || got[1] != channelstest.OwnSlice {
			t.Errorf("slices %v", got)
		}
	})
}

// A process that has not made its context yet has no slice to set, and is not done.
func TestSliceOfNoGroupIsNotSet(t *testing.T) {
	r := newRig(t, channels.Options{})
	p := r.Start(1)
	_, err := r.Apply(t.Context(), target(p), channels.Standing{Slice: time.Second})
	check(t, err, channels.ErrNoGroup)
	_, err = r.Apply(t.Context(), target(p), channels.Standing{})
	check(t, err, nil)
}

// A first search that takes all the time of its caller is no failure, whatever the driver says: the
// next try has its result.
func TestSlowFirstSearchIsNoGroup(t *testing.T) {
	for name, slow := range map[string]func(r *rig, end context.CancelFunc){
		"found as the time is over": func(r *rig, end context.CancelFunc) {
			r.driver.After = func(call string) error {
				if call == "find" {
					end()
				}
				return nil
			}
		},
		"the driver does not answer": func(r *rig, _ context.CancelFunc) {
			r.driver.Before = func(_ context.Context, call string) error {
				if call == "find" {
					return fmt.Errorf("find: the driver has not answered: %w", context.DeadlineExceeded)
				}
				return nil
			}
		},
	} {
		for _, standing := range []channels.Standing{takeOff, {Slice: time.Second}} {
			r := newRig(t, channels.Options{})
			p := r.Start(1, gpuNames[0])
			ctx, cancel := context.WithCancel(t.Context())
			slow(r, cancel)
			_, err := r.Apply(ctx, target(p), standing)
			cancel()
			if !errors.Is(err, channels.ErrNoGroup) {
				t.Errorf("%s: %v", name, err)
			}
			if n, err := r.Pending(); n != 0 || err != nil || r.Off(p) != 0 {
				t.Errorf("%s: %d on record, %d off, %v", name, n, r.Off(p), err)
			}
			r.driver.Before, r.driver.After = nil, nil
			_, err = r.Apply(t.Context(), target(p), takeOff)
			check(t, err, nil)
		}
	}
}

// A search that takes too long leaves what is on record in force. Restore undoes it without a search.
func TestSlowInspectionLeavesTheRecord(t *testing.T) {
	for name, standing := range map[string]channels.Standing{"a slice": {Slice: time.Second}, "off": takeOff} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, channels.Options{})
			p := r.Start(1, gpuNames[0])
			for range 2 { // the first one looks whether its program sets a slice
				_, err := r.Apply(t.Context(), target(p), standing)
				check(t, err, nil)
			}
			defer r.stall()()
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			_, err := r.Inspect(ctx, target(p), standing)
			check(t, err, channels.ErrNoGroup)
			if n, err := r.Pending(); n != 1 || err != nil {
				t.Fatalf("%d on record, %v", n, err)
			}
			check(t, r.Restore(t.Context(), p), nil)
			if n, err := r.Pending(); n != 0 || err != nil || r.Off(p) != 0 || r.Slices(p)[0] != channelstest.OwnSlice {
				t.Errorf("%d on record, %v; %d off, slices %v", n, err, r.Off(p), r.Slices(p))
			}
		})
	}
}

// Of a process whose groups are gone nothing is left to restore.
func TestRestoreOfGroupsThatAreGoneEnds(t *testing.T) {
	for name, inspects := range map[string]bool{"found by an inspection": true, "not looked for": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, channels.Options{})
			p := r.Start(1, gpuNames[0])
			standing := channels.Standing{Slice: time.Second}
			for range 2 {
				_, err := r.Apply(t.Context(), target(p), standing)
				check(t, err, nil)
			}
			r.DropGroup(p)
			if inspects {
				_, err := r.Inspect(t.Context(), target(p), standing)
				check(t, err, channels.ErrNoGroup)
			}
			check(t, r.Restore(t.Context(), p), nil)
			if n, err := r.Pending(); n != 0 || err != nil {
				t.Errorf("%d on record, %v", n, err)
			}
		})
	}
}
