package channels_test

import (
	"context"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/internal/rm"
)

// TestLeaseIsForgotten: a lease is remembered for as long as channels are off, whatever else is on
// record of the process.
func TestLeaseIsForgotten(t *testing.T) {
	sliced := channels.Standing{Slice: time.Millisecond}
	for name, tt := range map[string]struct {
		then          func(*testing.T, *rig, rm.Process) // after it went off for a second
		at            time.Duration                      // when the timer of the first lease fires
		pending, want int                                // on record before it fires, leases after
	}{
		"the lease ends":                    {at: 2 * time.Second, pending: 1},
		"it is renewed":                     {then: applies(takeOff), at: 500 * time.Millisecond, pending: 1, want: 1},
		"it is on, and nothing is left":     {then: applies(channels.Standing{}), at: 2 * time.Second},
		"it is on, and keeps a slice":       {then: applies(sliced), at: 2 * time.Second, pending: 1},
		"it is on with a slice, soon after": {then: applies(sliced), at: 500 * time.Millisecond, pending: 1},
		"it is on with a slice, and the driver is busy at the end": {at: 2 * time.Second, pending: 1, then: func(t *testing.T, r *rig, p rm.Process) {
			t.Helper()
			applies(sliced)(t, r, p)
			unlock, err := r.Lock(t.Context(), p.PID) // by another program
			check(t, err, nil)
			t.Cleanup(unlock)
			r.SetDeadline(50 * time.Millisecond)
		}},
		"it has ended": {at: 2 * time.Second, pending: 1, then: func(_ *testing.T, r *rig, p rm.Process) { r.Kill(p) }},
	} {
		t.Run(name, func(t *testing.T) {
			var now time.Duration
			var ends []func()
			r := newRig(t, channels.Options{
				Now:   func() time.Duration { return now },
				After: func(_ time.Duration, f func()) func() { ends = append(ends, f); return func() {} }})
			p := r.Start(1, gpuNames[0])
			applies(sliced)(t, r, p)
			now = time.Millisecond // its groups are settled
			applies(channels.Standing{Slice: sliced.Slice, Off: true})(t, r, p)
			if n := r.Leases(); n != 1 {
				t.Fatalf("%d leases of a process that is off", n)
			}
			if tt.then != nil {
				tt.then(t, r, p)
			}
			if n, err := r.Pending(); n != tt.pending || err != nil {
				t.Fatalf("%d on record, %v; want %d", n, err, tt.pending)
			}
			now = tt.at
			ends[0]()
			if n := r.Leases(); n != tt.want {
				t.Errorf("%d leases are remembered, want %d", n, tt.want)
			}
		})
	}
}

// TestLeaseOfAnEndedProcessIsForgotten, though its timer never fires.
func TestLeaseOfAnEndedProcessIsForgotten(t *testing.T) {
	for name, forget := range map[string]func(context.Context, *rig, rm.Process) error{
		"its record is removed": func(ctx context.Context, r *rig, p rm.Process) error { return r.Restore(ctx, p) },
		"it is pruned": func(ctx context.Context, r *rig, _ rm.Process) error {
			for pid := 2; pid < 100; pid++ {
				if _, err := r.Apply(ctx, target(r.Start(pid, gpuNames[0])), channels.Standing{}); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, channels.Options{})
			p := r.Start(1, gpuNames[0])
			applies(takeOff)(t, r, p)
			r.Kill(p)
			check(t, forget(t.Context(), r, p), nil)
			if n := r.Leases(); n != 0 {
				t.Errorf("%d leases are remembered", n)
			}
		})
	}
}

func applies(s channels.Standing) func(*testing.T, *rig, rm.Process) {
	return func(t *testing.T, r *rig, p rm.Process) {
		t.Helper()
		_, err := r.Apply(t.Context(), target(p), s)
		check(t, err, nil)
	}
}
