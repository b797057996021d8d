package channels_test

import (
	"context"
	"errors"
	"testing"

	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/actuator/enforce/channels/channelstest"
	"github.com/laxity/laxity/internal/rm"
)

var standsOff = channels.Standing{Off: true, Reason: "test"}

// job is a rig with a container of two ranks, a GPU each.
func job(t *testing.T) (*rig, channels.Target) {
	t.Helper()
	r := newRig(t, channels.Options{AsOne: true})
	return r, channels.Target{Container: "job", Processes: []rm.Process{r.Start(1, "GPU-0"), r.Start(2, "GPU-1")}, GPUs: []string{"GPU-0", "GPU-1"}}
}

func expectOff(t *testing.T, r *rig, all []rm.Process, off bool) {
	t.Helper()
	for _, p := range all {
		want := 0
		if off {
			want = r.Channels(p)
		}
		if n := r.Off(p); n != want {
			t.Errorf("%d channels of %v are off, want %d", n, p, want)
		}
	}
}

// A call that fails, before or after it came into effect, leaves nobody off and nothing on record.
func TestAsOneIsAllOrNone(t *testing.T) {
	r, target := job(t)
	broken := errors.New("the driver refuses")
	fail := func(call string) error {
		if call == "switch as one" {
			return broken
		}
		return nil
	}
	for name, breakIt := range map[string]func(){
		"before": func() { r.driver.Before = func(_ context.Context, call string) error { return fail(call) } },
		"after":  func() { r.driver.After = fail },
	} {
		breakIt()
		res, err := r.Apply(t.Context(), target, standsOff)
		if !errors.Is(err, broken) || res.Off {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
		expectOff(t, r, target.Processes, false)
		if n, _ := r.Pending(); n != 0 {
			t.Errorf("%s: %d are on record", name, n)
		}
		r.driver.Before, r.driver.After = nil, nil
	}
	if res, err := r.Apply(t.Context(), target, standsOff); err != nil || !res.Off || res.Skew != channelstest.Skew {
		t.Fatalf("%+v, %v", res, err)
	}
	// A call that fails on the way on is made for each by itself.
	r.driver.Before = func(_ context.Context, call string) error { return fail(call) }
	if _, err := r.Apply(t.Context(), target, channels.Standing{}); err != nil {
		t.Error(err)
	}
	expectOff(t, r, target.Processes, false)
}

// Everybody is on record before the first call.
func TestAsOneIsOnRecordFirst(t *testing.T) {
	r, target := job(t)
	r.driver.Before = func(_ context.Context, call string) error {
		if n, _ := r.Pending(); call == "switch as one" && n != 2 {
			t.Errorf("%d are on record at the call", n)
		}
		return nil
	}
	if _, err := r.Apply(t.Context(), target, standsOff); err != nil {
		t.Fatal(err)
	}
}

// A rank of which no group is found yet keeps the others on.
func TestAsOneWaitsForAllOfItsGPUs(t *testing.T) {
	r, target := job(t)
	late := r.Start(3)
	target.Processes[1] = late
	res, err := r.Apply(t.Context(), target, standsOff)
	if !errors.Is(err, channels.ErrNoGroup) || res.Off {
		t.Errorf("%+v, %v", res, err)
	}
	expectOff(t, r, target.Processes, false)
	r.AddGroup(late, "GPU-1")
	if res, err := r.Inspect(t.Context(), target, standsOff); err != nil || !res.Off {
		t.Errorf("%+v, %v", res, err)
	}
	expectOff(t, r, target.Processes, true)
}

// A rank that ends lets the others go on.
func TestAsOneWithARankThatEnded(t *testing.T) {
	r, target := job(t)
	if _, err := r.Apply(t.Context(), target, standsOff); err != nil {
		t.Fatal(err)
	}
	r.Kill(target.Processes[0])
	if _, err := r.Apply(t.Context(), target, channels.Standing{}); err != nil {
		t.Error(err)
	}
	expectOff(t, r, target.Processes[1:], false)
	if n, _ := r.Pending(); n != 0 {
		t.Errorf("%d are on record", n)
	}
}

// Without the option a container on several GPUs stays on, whether both of them are found or not.
func TestSeveralGPUsWithoutTheOption(t *testing.T) {
	r := newRig(t, channels.Options{})
	a, b := r.Start(1, "GPU-0"), r.Start(2)
	target := channels.Target{Processes: []rm.Process{a, b}, GPUs: []string{"GPU-0", "GPU-1"}}
	if _, err := r.Apply(t.Context(), target, standsOff); !errors.Is(err, channels.ErrSeveralGPUs) {
		t.Error(err)
	}
	expectOff(t, r, target.Processes, false)
}
