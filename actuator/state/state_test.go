package state_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/exporter/task"
)

func TestHTTPSnapshot(t *testing.T) {
	var code atomic.Int32
	code.Store(200)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/tasks" {
			http.NotFound(w, r)
			return
		}
		w.WriteHeader(int(code.Load()))
		_ = json.NewEncoder(w).Encode(task.Snapshot{Sequence: 7, GPUs: []task.GPU{{UUID: "g", Utilization: task.Seconds(0.5)}}})
	}))
	defer server.Close()
	h, err := state.NewHTTP(server.URL+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := h.Snapshot(context.Background())
	if err != nil || s.Sequence != 7 || s.GPUs[0].Utilization != 0.5 {
		t.Errorf("%+v %v", s, err)
	}
	code.Store(404)
	if _, err := h.Snapshot(context.Background()); err == nil || !strings.Contains(err.Error(), "is it a laxity-exporter") {
		t.Errorf("error %v", err)
	}
	server.Close()
	if _, err := h.Snapshot(context.Background()); err == nil || !strings.Contains(err.Error(), "running") {
		t.Errorf("error %v", err)
	}
}

func TestHTTPWatchConnectsAgain(t *testing.T) {
	var connections atomic.Uint64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := connections.Add(1)
		if n == 2 {
			_, _ = fmt.Fprintln(w, "this is no snapshot")
			return
		}
		_ = json.NewEncoder(w).Encode(task.Snapshot{Sequence: n}) // and the stream ends
	}))
	defer server.Close()
	h, err := state.NewHTTP(server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	var down, up atomic.Int32
	h.Trouble = func(err error) {
		if err != nil {
			down.Add(1)
		} else {
			up.Add(1)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ch, err := h.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for s := range ch {
		if s.Sequence >= 4 {
			break
		}
	}
	if down.Load() < 3 || up.Load() < 3 {
		t.Errorf("told of %d breaks, %d returns", down.Load(), up.Load())
	}
	cancel()
	for range ch { // until it is closed
	}
}

func TestHTTPAddress(t *testing.T) {
	for _, base := range []string{"", "nowhere", "ftp://x", "http://", ":9870"} {
		if _, err := state.NewHTTP(base, nil); err == nil || !strings.Contains(err.Error(), "http://127.0.0.1:9870") {
			t.Errorf("%q: %v", base, err)
		}
	}
}

func TestLatestReplaces(t *testing.T) {
	ch := make(chan *task.Snapshot, 1)
	for i := range uint64(3) {
		state.Latest(ch, &task.Snapshot{Sequence: i})
	}
	if s := <-ch; s.Sequence != 2 {
		t.Errorf("got %d", s.Sequence)
	}
}

var t0 = time.Unix(1_700_000_000, 0)

func at(s int) time.Time { return t0.Add(time.Duration(s) * time.Second) }

func lease(starts, expires int) state.Lease {
	return state.Lease{Wish: state.WishArbitrate, Target: "g", Fingerprint: "f", StartsAt: at(starts), Opened: at(starts), Expires: at(expires)}
}

func open(t *testing.T) (*state.Book, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "leases.json")
	b, err := state.OpenBook(path, t0)
	if err != nil {
		t.Fatal(err)
	}
	return b, path
}

func TestBookLeases(t *testing.T) {
	b, path := open(t)
	if opened, stale := b.Fire(lease(0, 10)); !opened || stale {
		t.Error("not opened")
	}
	if opened, stale := b.Fire(lease(0, 20)); opened || stale {
		t.Error("not renewed")
	}
	b.Fire(lease(0, 15))
	if l := b.Leases(); len(l) != 1 || !l[0].Expires.Equal(at(20)) {
		t.Errorf("a late repeat shortened it: %+v", l)
	}
	if b.Resolve(state.WishArbitrate, "f", at(-5), at(1)) {
		t.Error("resolved by the end of an earlier firing")
	}
	if !b.Resolve(state.WishArbitrate, "f", at(0), at(1)) {
		t.Error("not resolved")
	}
	if _, stale := b.Fire(lease(0, 30)); !stale {
		t.Error("a late repeat undid the resolve")
	}
	if err := b.Save(); err != nil {
		t.Fatal(err)
	}

	// It survives a restart.
	b, err := state.OpenBook(path, t0)
	if err != nil {
		t.Fatal(err)
	}
	l := b.Leases()
	if len(l) != 1 || !l[0].Resolved {
		t.Fatalf("%+v", l)
	}
	b.Close(l[0])
	if _, stale := b.Fire(lease(0, 30)); !stale {
		t.Error("a late repeat opened it again")
	}
	if opened, stale := b.Fire(lease(3, 30)); !opened || stale {
		t.Error("a new firing was not taken")
	}
}

// A resolve that overtakes its firing.
func TestResolveFirst(t *testing.T) {
	b, _ := open(t)
	if b.Resolve(state.WishPause, "f", at(0), at(1)) {
		t.Error("there was none")
	}
	l := lease(0, 10)
	l.Wish = state.WishPause
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
		b, _ := open(t)
		b.Fire(lease(0, 300))
		b.Resolve(state.WishArbitrate, "f", at(0), at(20))
		if closed {
			b.Close(b.Leases()[0])
		}
		for _, received := range []int{21, 139, 140} {
			l := lease(0, received+300)
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
	b, _ := open(t)
	b.Fire(lease(0, 10))
	b.Close(b.Leases()[0])
	if opened, stale := b.Fire(lease(0, 20)); !opened || stale {
		t.Error("the alert still fires")
	}
}

// The wall clock was set back while nobody ran: a lease lasts no longer than if it were
// renewed now.
func TestBookOfBeforeTheClockWasSetBack(t *testing.T) {
	b, path := open(t)
	b.Fire(lease(0, 300))
	renewed := lease(0, 3900)
	renewed.Opened = at(3600)
	b.Fire(renewed)
	if err := b.Save(); err != nil {
		t.Fatal(err)
	}
	for now, want := range map[int]int{3700: 3900, 3600: 3900, 0: 300, -7200: -6900} {
		b, err := state.OpenBook(path, at(now))
		if err != nil {
			t.Fatal(err)
		}
		if l := b.Leases()[0]; !l.Expires.Equal(at(want)) || l.Opened.After(at(now)) {
			t.Errorf("read after %d s: it expires at %v, opened at %v; want %v", now, l.Expires, l.Opened, at(want))
		}
	}
}

// A sender cannot open leases without end: of one wish for one target, or in all.
func TestLeasesAreBounded(t *testing.T) {
	b, _ := open(t)
	fire := func(target, fingerprint string) bool {
		l := lease(0, 100)
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
	b, path := open(t)
	for i := range 100_000 {
		b.Resolve(state.WishPause, fmt.Sprint(i), at(0), at(0).Add(time.Duration(i)))
	}
	if err := b.Save(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Size() > 2<<20 {
		t.Errorf("they take %d bytes on the disk, %v", info.Size(), err)
	}
	l := lease(0, 10)
	l.Wish, l.Fingerprint = state.WishPause, "99999"
	if _, stale := b.Fire(l); !stale {
		t.Error("the youngest resolve was forgotten")
	}
}

func TestBookExemptions(t *testing.T) {
	b, path := open(t)
	b.Exempt(state.Exemption{ContainerID: "c", Tasks: []string{"t"}, Reason: "r"})
	if err := b.Save(); err != nil {
		t.Fatal(err)
	}
	b, _ = state.OpenBook(path, t0)
	if e, ok := b.Exemption("c"); !ok || e.Reason != "r" || len(b.Exemptions()) != 1 {
		t.Errorf("%+v %v", e, ok)
	}
	b.Forgive("c")
	if _, ok := b.Exemption("c"); ok {
		t.Error("not forgiven")
	}
}

func TestDamagedBook(t *testing.T) {
	path := filepath.Join(t.TempDir(), "leases.json")
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := state.OpenBook(path, t0)
	if err == nil || !strings.Contains(err.Error(), ".damaged-") {
		t.Errorf("error %v", err)
	}
	if opened, _ := b.Fire(lease(0, 10)); !opened {
		t.Error("not usable")
	}
	if err := b.Save(); err != nil {
		t.Error(err)
	}
	if _, err := state.OpenBook(path, t0); err != nil {
		t.Error(err)
	}
}

// In whatever order and however often the notifications of one alert come: once
// its last resolve was seen, no lease of it stays that is not marked resolved.
func TestAnyOrderEndsResolved(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		b, err := state.OpenBook(filepath.Join(dir, "none"), t0)
		if err != nil {
			t.Fatal(err)
		}
		episodes := rapid.IntRange(1, 3).Draw(t, "episodes")
		last := false // the last episode's resolve was seen
		for range rapid.IntRange(1, 20).Draw(t, "n") {
			e := rapid.IntRange(0, episodes-1).Draw(t, "episode")
			switch rapid.SampledFrom([]string{"fire", "resolve", "close"}).Draw(t, "what") {
			case "fire":
				b.Fire(lease(e, 1000))
			case "resolve":
				b.Resolve(state.WishArbitrate, "f", at(e), at(e))
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
