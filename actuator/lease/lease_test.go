package lease_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/laxity/laxity/actuator/lease"
)

var t0 = time.Unix(1_700_000_000, 0)

func at(s int) time.Time { return t0.Add(time.Duration(s) * time.Second) }

func firing(starts, expires int) lease.Lease {
	return lease.Lease{Wish: lease.Arbitrate, Target: "g", Fingerprint: "f", StartsAt: at(starts), Opened: at(starts), Expires: at(expires)}
}

// again is the book after a restart at this moment.
func again(t *testing.T, b *lease.Book, now time.Time) *lease.Book {
	t.Helper()
	raw, err := b.Encode()
	if err != nil {
		t.Fatal(err)
	}
	b, err = lease.Decode(raw, now)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestBookLeases(t *testing.T) {
	b := lease.New()
	if opened, stale := b.Fire(firing(0, 10)); !opened || stale {
		t.Error("not opened")
	}
	if opened, stale := b.Fire(firing(0, 20)); opened || stale {
		t.Error("not renewed")
	}
	b.Fire(firing(0, 15))
	if l := b.Leases(); len(l) != 1 || !l[0].Expires.Equal(at(20)) {
		t.Errorf("a late repeat shortened it: %+v", l)
	}
	if b.Resolve(lease.Arbitrate, "f", at(-5), at(1)) {
		t.Error("resolved by the end of an earlier firing")
	}
	if !b.Resolve(lease.Arbitrate, "f", at(0), at(1)) {
		t.Error("not resolved")
	}
	if _, stale := b.Fire(firing(0, 30)); !stale {
		t.Error("a late repeat undid the resolve")
	}

	// It survives a restart.
	b = again(t, b, t0)
	l := b.Leases()
	if len(l) != 1 || !l[0].Resolved {
		t.Fatalf("%+v", l)
	}
	b.Close(l[0])
	if _, stale := b.Fire(firing(0, 30)); !stale {
		t.Error("a late repeat opened it again")
	}
	if opened, stale := b.Fire(firing(3, 30)); !opened || stale {
		t.Error("a new firing was not taken")
	}
}

// A lease that is to end earlier stays what it is but for that; it is never prolonged.
func TestShorten(t *testing.T) {
	for end, want := range map[int]int{5: 5, 20: 10} {
		b := lease.New()
		b.Fire(firing(0, 10))
		b.Written()
		open := b.Leases()[0]
		b.Shorten(open, at(end))
		got := b.Leases()[0]
		if open.Expires = at(want); got != open || b.Changed() != (want < 10) {
			t.Errorf("to end at %d: %+v, changed %v", end, got, b.Changed())
		}
	}
	lease.New().Shorten(firing(0, 10), at(5)) // of one that is not open
}

// A resolve that overtakes its firing.
func TestResolveFirst(t *testing.T) {
	b := lease.New()
	if b.Resolve(lease.Pause, "f", at(0), at(1)) {
		t.Error("there was none")
	}
	l := firing(0, 10)
	l.Wish = lease.Pause
	if _, stale := b.Fire(l); !stale {
		t.Error("it was opened after its end")
	}
	b.Sweep(at(600))
	if opened, _ := b.Fire(l); !opened {
		t.Error("remembered for too long")
	}
}

// Alertmanager resolves what Prometheus could not renew in time, and later goes on
// with the same start: that is no repeat, whether its lease is still there or not.
func TestFiresOnAfterALostConnection(t *testing.T) {
	for _, closed := range []bool{false, true} {
		b := lease.New()
		b.Fire(firing(0, 300))
		b.Resolve(lease.Arbitrate, "f", at(0), at(20))
		if closed {
			b.Close(b.Leases()[0])
		}
		for _, received := range []int{21, 139, 140} {
			l := firing(0, received+300)
			l.Opened = at(received)
			_, stale := b.Fire(l)
			if stale != (received < 140) {
				t.Errorf("closed %v, received after %d s: stale %v", closed, received, stale)
			}
		}
		if l := b.Leases(); len(l) != 1 || l[0].Resolved || !l[0].Expires.Equal(at(440)) {
			t.Errorf("closed %v: %+v", closed, l)
		}
	}
}

// A lease that ran out is opened again by the next repeat of the same firing.
func TestLeaseOverIsNoResolve(t *testing.T) {
	b := lease.New()
	b.Fire(firing(0, 10))
	b.Close(b.Leases()[0])
	if opened, stale := b.Fire(firing(0, 20)); !opened || stale {
		t.Error("the alert still fires")
	}
}

// The wall clock was set back while nobody ran: a lease lasts no longer than if it were
// renewed now.
func TestBookOfBeforeTheClockWasSetBack(t *testing.T) {
	b := lease.New()
	b.Fire(firing(0, 300))
	renewed := firing(0, 3900)
	renewed.Opened = at(3600)
	b.Fire(renewed)
	for now, want := range map[int]int{3700: 3900, 3600: 3900, 0: 300, -7200: -6900} {
		b := again(t, b, at(now))
		if l := b.Leases()[0]; !l.Expires.Equal(at(want)) || l.Opened.After(at(now)) {
			t.Errorf("read after %d s: it expires at %v, opened at %v; want %v", now, l.Expires, l.Opened, at(want))
		}
	}
}

// A sender cannot open leases without end: of one wish for one target, or in all.
func TestLeasesAreBounded(t *testing.T) {
	b := lease.New()
	fire := func(target, fingerprint string) bool {
		l := firing(0, 100)
		l.Target, l.Fingerprint = target, fingerprint
		if b.Room(l) != "" {
			return false
		}
		b.Fire(l)
		return true
	}
	for i := range 16 {
		if !fire("g", fmt.Sprint(i)) {
			t.Fatalf("no room for %d of one target", i)
		}
	}
	if fire("g", "one more") {
		t.Error("a target may have any number of leases")
	}
	if !fire("g", "3") {
		t.Error("an open lease cannot be renewed")
	}
	n := 16
	for fire(fmt.Sprint("gpu ", n), fmt.Sprint("other ", n)) {
		n++
	}
	if n != 1024 {
		t.Errorf("%d leases in all", n)
	}
	b.Close(b.Leases()[0])
	if !fire("another", "another") {
		t.Error("no room though one was closed")
	}
}

// One message can resolve thousands of alerts that never fired.
func TestTombstonesAreBounded(t *testing.T) {
	b := lease.New()
	for i := range 100_000 {
		b.Resolve(lease.Pause, fmt.Sprint(i), at(0), at(0).Add(time.Duration(i)))
	}
	if raw, err := b.Encode(); err != nil || len(raw) > 2<<20 {
		t.Errorf("they take %d bytes on the disk, %v", len(raw), err)
	}
	l := firing(0, 10)
	l.Wish, l.Fingerprint = lease.Pause, "99999"
	if _, stale := b.Fire(l); !stale {
		t.Error("the youngest resolve was forgotten")
	}
}

func TestBookExemptions(t *testing.T) {
	b := lease.New()
	b.Exempt(lease.Exemption{ContainerID: "c", Tasks: []string{"t"}, Reason: "r"})
	b = again(t, b, t0)
	if e, ok := b.Exemption("c"); !ok || e.Reason != "r" || len(b.Exemptions()) != 1 {
		t.Errorf("%+v %v", e, ok)
	}
	b.Forgive("c")
	if _, ok := b.Exemption("c"); ok {
		t.Error("not forgiven")
	}
}

// In whatever order and however often the notifications of one alert come: once
// its last resolve was seen, no lease of it stays that is not marked resolved.
func TestAnyOrderEndsResolved(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := lease.New()
		episodes := rapid.IntRange(1, 3).Draw(t, "episodes")
		last := false // the last episode's resolve was seen
		for range rapid.IntRange(1, 20).Draw(t, "n") {
			e := rapid.IntRange(0, episodes-1).Draw(t, "episode")
			switch rapid.SampledFrom([]string{"fire", "resolve", "close"}).Draw(t, "what") {
			case "fire":
				b.Fire(firing(e, 1000))
			case "resolve":
				b.Resolve(lease.Arbitrate, "f", at(e), at(e))
				last = last || e == episodes-1
			default:
				for _, l := range b.Leases() {
					if l.Resolved {
						b.Close(l)
					}
				}
			}
			for _, l := range b.Leases() {
				if last && !l.Resolved {
					t.Fatalf("open after its end: %+v", l)
				}
			}
		}
	})
}
