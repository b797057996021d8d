package allocator_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/allocator"
)

const gib = 1 << 30

// box is a container on GPU-0; limit 0: none.
func box(name string, rank int, limit, held uint64) allocator.Container {
	c := allocator.Container{ID: name, Name: name, Rank: rank, Held: map[string]uint64{gpuName(0): held}}
	if limit > 0 {
		c.Limit = map[string]uint64{gpuName(0): limit}
	}
	return c
}

func card(total uint64) []allocator.GPU { return []allocator.GPU{{UUID: gpuName(0), Total: total}} }

func ask(id uint64, who string, bytes uint64, since time.Time) allocator.Request {
	return allocator.Request{ID: id, Container: who, GPU: gpuName(0), Bytes: bytes, Since: since}
}

func TestDecide(t *testing.T) {
	swappable := func(c allocator.Container) allocator.Container { c.Swappable = true; return c }
	never := box("never", 0, 10*gib, gib)
	never.Never, never.Because = true, "it is labelled laxity.pause=never"
	released := box("released", 0, 10*gib, gib)
	released.Never, released.Bounded, released.Because = true, true, "ann released it"
	elsewhere := released
	elsewhere.Limit = map[string]uint64{gpuName(1): 10 * gib}
	unlimited := box("unlimited", 0, 0, gib)
	unlimited.Never, unlimited.Bounded, unlimited.Because = true, true, "ann released it"
	person := box("person", 1, 0, 80*gib)
	person.Stays = true
	barred := box("late", 2, 10*gib, 0)
	barred.Barred = "does not fit beside early"
	for _, tt := range []struct {
		name    string
		state   allocator.State
		verdict allocator.Verdict
		why     allocator.Why
		reason  string
		victim  string
	}{
		{"there is room", allocator.State{GPUs: card(100 * gib), Containers: []allocator.Container{box("a", 0, 10*gib, 0)},
			Requests: []allocator.Request{ask(1, "a", 10*gib, epoch)}}, allocator.Grant, allocator.Free, "100.0 GiB", ""},
		{"over its limit", allocator.State{GPUs: card(100 * gib), Containers: []allocator.Container{box("a", 0, 10*gib, 4*gib)},
			Requests: []allocator.Request{ask(1, "a", 7*gib, epoch)}}, allocator.Deny, allocator.Limit, "its limit is 10.0 GiB", ""},
		{"more than a number can say", allocator.State{GPUs: card(100 * gib), Containers: []allocator.Container{box("a", 0, 0, gib)},
			Requests: []allocator.Request{ask(1, "a", ^uint64(0), epoch)}}, allocator.Deny, allocator.TooLarge, "more than 1 TiB", ""},
		{"unmanaged memory is gone", allocator.State{GPUs: []allocator.GPU{{UUID: gpuName(0), Total: 100 * gib, Gone: 60 * gib}},
			Containers: []allocator.Container{box("a", 0, 0, 0)},
			Requests:   []allocator.Request{ask(1, "a", 41*gib, epoch)}}, allocator.Deny, allocator.TooLarge, "40.0 GiB", ""},
		{"the second of P5's two", allocator.State{GPUs: card(100), Containers: []allocator.Container{box("a", 0, 80, 40), box("b", 1, 80, 0)},
			Requests: []allocator.Request{ask(1, "b", 40, epoch)}}, allocator.Wait, allocator.Unsafe, "for ever", ""},
		{"a card that is full", allocator.State{GPUs: card(100), Containers: []allocator.Container{box("a", 0, 80, 80), box("b", 1, 0, 0)},
			Requests: []allocator.Request{ask(1, "b", 40, epoch)}}, allocator.Wait, allocator.Room, "a holds 80 bytes", ""},
		{"waited for as long as is allowed", allocator.State{GPUs: card(100), Now: epoch.Add(time.Minute), MaxWait: time.Minute,
			Containers: []allocator.Container{box("a", 0, 80, 80), box("b", 1, 0, 0)},
			Requests:   []allocator.Request{ask(1, "b", 40, epoch)}}, allocator.Deny, allocator.TooLong, "1m0s", ""},
		{"never refused", allocator.State{GPUs: card(10 * gib), Containers: []allocator.Container{never},
			Requests: []allocator.Request{ask(1, "never", 50*gib, epoch)}}, allocator.Grant, allocator.Never, "laxity.pause=never", ""},
		{"released, it never waits", allocator.State{GPUs: card(10 * gib), Containers: []allocator.Container{released, box("a", 1, 0, 9*gib)},
			Requests: []allocator.Request{ask(1, "released", 9*gib, epoch)}}, allocator.Grant, allocator.Never, "ann released it", ""},
		{"released, it is over its limit", allocator.State{GPUs: card(100 * gib), Containers: []allocator.Container{released},
			Requests: []allocator.Request{ask(1, "released", 9*gib+1, epoch)}}, allocator.Deny, allocator.Limit, "its limit is 10.0 GiB", ""},
		{"released, it is over its limit on a GPU that nobody knew it sees", allocator.State{GPUs: card(100 * gib), Containers: []allocator.Container{elsewhere},
			Requests: []allocator.Request{ask(1, "released", 9*gib+1, epoch)}}, allocator.Deny, allocator.Limit, "its limit is 10.0 GiB", ""},
		{"released, without a limit", allocator.State{GPUs: card(10 * gib), Containers: []allocator.Container{unlimited},
			Requests: []allocator.Request{ask(1, "unlimited", 50*gib, epoch)}}, allocator.Grant, allocator.Never, "ann released it", ""},
		{"what is never refused counts for its most", allocator.State{GPUs: card(20 * gib), Containers: []allocator.Container{never, box("a", 1, 0, 0)},
			Requests: []allocator.Request{ask(1, "a", 11*gib, epoch)}}, allocator.Deny, allocator.TooLarge, "10.0 GiB", ""},
		{"nobody counts on what a person paused", allocator.State{GPUs: card(100 * gib), Containers: []allocator.Container{person, box("a", 0, 0, gib)},
			Requests: []allocator.Request{ask(1, "a", 30*gib, epoch)}}, allocator.Wait, allocator.Room, "person holds", ""},
		{"it may not begin", allocator.State{GPUs: card(100 * gib), Containers: []allocator.Container{barred},
			Requests: []allocator.Request{ask(1, "late", gib, epoch)}}, allocator.Wait, allocator.Barred, "beside early", ""},
		{"it may not begin, but there is room when it has waited for long", allocator.State{GPUs: card(100 * gib), Now: epoch.Add(time.Minute), MaxWait: time.Minute,
			Containers: []allocator.Container{barred},
			Requests:   []allocator.Request{ask(1, "late", gib, epoch)}}, allocator.Grant, allocator.Free, "100.0 GiB", ""},
		{"nothing is known of it", allocator.State{GPUs: card(1), Requests: []allocator.Request{ask(1, "x", 5, epoch)}},
			allocator.Grant, allocator.Unknown, "known", ""},
		{"a circle is broken by swapping", allocator.State{GPUs: card(100),
			Containers: []allocator.Container{box("a", 0, 0, 50), swappable(box("b", 1, 0, 50))},
			Requests:   []allocator.Request{ask(1, "a", 10, epoch), ask(2, "b", 10, epoch)}}, allocator.Wait, allocator.Room, "b is to be swapped out", "b"},
		{"what was lent is called back by swapping", allocator.State{GPUs: card(100), Share: allocator.Adaptive,
			Containers: []allocator.Container{box("a", 1, 0, 10), swappable(box("b", 0, 0, 90))},
			Requests:   []allocator.Request{ask(1, "a", 40, epoch)}}, allocator.Wait, allocator.Room, "holds more than its own", "b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := allocator.Decide(tt.state)[0]
			victim := strings.Join(a.Victims, " ")
			if a.Verdict != tt.verdict || a.Why != tt.why || !strings.Contains(a.Reason, tt.reason) || victim != tt.victim {
				t.Errorf("%+v", a)
			}
		})
	}
}

// Who may not begin has no share yet: what nobody else may have is not kept for it.
func TestBarredHaveNoShare(t *testing.T) {
	for _, share := range []allocator.Share{allocator.Fair, allocator.Adaptive} {
		s := allocator.State{GPUs: card(100), Share: share, Now: epoch.Add(4 * time.Second), MaxWait: 10 * time.Second, Patience: 10 * time.Second,
			Containers: []allocator.Container{box("a", 0, 100, 20), box("b", 1, 100, 0), box("c", 2, 100, 0)},
			Requests:   []allocator.Request{ask(1, "a", 75, epoch), ask(2, "b", 10, epoch), ask(3, "c", 10, epoch)}}
		for i := range s.Containers[1:] {
			s.Containers[1+i].Barred = "does not fit beside a"
		}
		answers := allocator.Decide(s)
		if a := answers[0]; a.Verdict != allocator.Grant {
			t.Errorf("%s: %+v", share, a)
		}
		for _, a := range answers[1:] {
			if a.Verdict != allocator.Wait || a.Why != allocator.Barred {
				t.Errorf("%s: %+v", share, a)
			}
		}
	}
}

// What was lent while somebody might not begin is called back before its wait is over: else it would be refused.
func TestBarredGetWhatWasLent(t *testing.T) {
	a, b := box("a", 0, 100, 95), box("b", 1, 100, 0)
	b.Barred = "does not fit beside a"
	s := allocator.State{GPUs: card(100), Share: allocator.Adaptive, MaxWait: 10 * time.Second, Patience: 10 * time.Second,
		Containers: []allocator.Container{a, b}, Requests: []allocator.Request{ask(1, "b", 30, epoch)}}
	for _, tt := range []struct {
		after time.Duration
		can   bool // a can be swapped out
		why   allocator.Why
		swaps []string
	}{{4 * time.Second, true, allocator.Barred, nil}, {5 * time.Second, true, allocator.Room, []string{"a"}}, {9 * time.Second, false, allocator.Barred, nil}} {
		s.Now, s.Containers[0].Swappable = epoch.Add(tt.after), tt.can
		if got := allocator.Decide(s)[0]; got.Verdict != allocator.Wait || got.Why != tt.why || !slices.Equal(got.Victims, tt.swaps) {
			t.Errorf("after %v: %+v", tt.after, got)
		}
	}
}

// Who may not begin takes no share from those who wait for one either, as long as they hold memory: a will have all
// once d ends, and gets no more than its share before.
func TestBarredBeginAfterThoseWhoHold(t *testing.T) {
	s := allocator.State{GPUs: card(100), Share: allocator.Fair, Now: epoch.Add(time.Second), MaxWait: 10 * time.Second,
		Containers: []allocator.Container{box("a", 0, 100, 20), box("c", 1, 100, 0), box("d", 2, 100, 30)},
		Requests:   []allocator.Request{ask(1, "a", 35, epoch), ask(2, "c", 60, epoch)}}
	s.Containers[1].Barred = "does not fit beside a and d"
	for _, a := range allocator.Decide(s) {
		if a.Verdict != allocator.Wait {
			t.Errorf("%+v", a)
		}
	}
}

// Those without a limit take what is free; the circle that they come into is seen
// at once, and the last in order is told.
func TestCircleWithoutLimits(t *testing.T) {
	s := allocator.State{GPUs: card(100), Containers: []allocator.Container{box("a", 0, 0, 40), box("b", 1, 0, 40)},
		Requests: []allocator.Request{ask(1, "b", 40, epoch)}}
	if a := allocator.Decide(s)[0]; a.Verdict != allocator.Wait {
		t.Fatalf("a still runs: %+v", a)
	}
	s.Requests = append(s.Requests, ask(2, "a", 40, epoch))
	answers := allocator.Decide(s)
	if a := answers[0]; a.Request.Container != "a" || a.Verdict != allocator.Wait {
		t.Errorf("the first in order: %+v", a)
	}
	if b := answers[1]; b.Verdict != allocator.Deny || b.Why != allocator.Deadlock {
		t.Errorf("the last in order: %+v", b)
	}
}

// One that waits is passed for as long as Patience by those who fit beside it.
func TestPatience(t *testing.T) {
	s := allocator.State{GPUs: card(100), Now: epoch.Add(9 * time.Second), Patience: 10 * time.Second,
		Containers: []allocator.Container{box("a", 0, 60, 60), box("b", 1, 0, 0), box("c", 2, 0, 0)},
		Requests:   []allocator.Request{ask(1, "b", 50, epoch), ask(2, "c", 10, epoch)}}
	if a := allocator.Decide(s)[1]; a.Verdict != allocator.Grant {
		t.Errorf("it fits beside b: %+v", a)
	}
	s.Now = epoch.Add(10 * time.Second)
	if a := allocator.Decide(s)[1]; a.Verdict != allocator.Wait || a.Why != allocator.Behind {
		t.Errorf("b waits for too long: %+v", a)
	}
}

func TestParts(t *testing.T) {
	containers := []allocator.Container{box("a", 0, 20, 10), box("b", 1, 0, 50), box("c", 2, 0, 5), box("idle", 3, 0, 0)}
	for _, tt := range []struct {
		share allocator.Share
		want  map[string][2]uint64 // share, lent
	}{
		{allocator.ByLimit, map[string][2]uint64{"a": {20, 0}, "b": {100, 0}, "c": {100, 0}}},
		{allocator.Fair, map[string][2]uint64{"a": {20, 0}, "b": {33, 17}, "c": {33, 0}}},
		{allocator.Adaptive, map[string][2]uint64{"a": {20, 0}, "b": {40, 10}, "c": {40, 0}}},
	} {
		parts := allocator.Parts(allocator.State{GPUs: card(100), Containers: containers, Share: tt.share})
		if len(parts) != 3 {
			t.Errorf("%s: %+v", tt.share, parts)
		}
		for _, p := range parts {
			if got := [2]uint64{p.Share, p.Lent}; got != tt.want[p.Container] {
				t.Errorf("%s: %s has %v, want %v", tt.share, p.Container, got, tt.want[p.Container])
			}
		}
	}
}
