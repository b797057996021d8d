package core_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/arbiter/core"
	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/estimate"
	"github.com/laxity/laxity/actuator/lease"
	"github.com/laxity/laxity/exporter/task"
)

// What ended is written later than what was opened, resolved or exempt: a crash in between must
// change nothing. A core that reads the older leases ends them at its first look, and acts on none.
func TestWhatEndedEndsAgain(t *testing.T) {
	t0 := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	const container, gpu = "id-web", "GPU-0"
	fires := func(w lease.Wish, target string) func(*lease.Book) {
		return func(b *lease.Book) {
			b.Fire(lease.Lease{Wish: w, Target: target, Fingerprint: "f", StartsAt: t0, Opened: t0, Expires: t0.Add(time.Minute)})
		}
	}
	resolved := func(w lease.Wish, target string) func(*lease.Book) {
		return func(b *lease.Book) {
			fires(w, target)(b)
			b.Resolve(w, "f", t0, t0.Add(time.Second))
		}
	}
	exempt := func(b *lease.Book) {
		b.Exempt(lease.Exemption{ContainerID: container, Tasks: []string{"old"}, Reason: "released", Since: t0})
	}
	for _, tc := range []struct {
		about  string
		asked  func(*lease.Book)
		after  time.Duration // until it is looked at
		begins bool          // a request has begun meanwhile
	}{
		{"a request that was at risk has ended", fires(lease.Expedite, container), 30 * time.Millisecond, false},
		{"its alert is resolved", resolved(lease.Expedite, container), time.Second, true},
		{"its alert was not repeated", fires(lease.Expedite, container), time.Minute, true},
		{"nobody contends any more", resolved(lease.Arbitrate, gpu), time.Second, true},
		{"a pause was resolved", resolved(lease.Pause, container), time.Second, true},
		{"a pause lasted as long as is allowed", fires(lease.Pause, container), time.Minute, true},
		{"the tasks of a released container have ended", exempt, time.Second, true},
	} {
		t.Run(tc.about, func(t *testing.T) {
			book := lease.New()
			tc.asked(book)
			if !book.Changed() {
				t.Fatal("what is asked for need not be on disk")
			}
			disk, err := book.Encode()
			if err != nil {
				t.Fatal(err)
			}
			book.Written()
			looks := func(book *lease.Book) {
				t.Helper()
				now := t0.Add(tc.after)
				k := core.New(core.Options{
					Node: "n1", Config: config.Config{}.WithDefaults(), Leases: book, History: estimate.New(),
					MaxSnapshotAge: 10 * time.Second, HoldLease: 30 * time.Second, FetchEvery: time.Hour,
				}, now)
				web := task.Container{ID: container, Name: "web", Spec: task.Spec{Managed: true, Deadline: 0.02, Release: task.ReleaseBusy, Class: task.ClassDeadline}}
				s := task.Snapshot{Run: "r", Sequence: 1, Time: now, Health: task.Health{DeviceUp: true, EngineUp: true},
					GPUs: []task.GPU{{UUID: gpu, MemoryTotal: 100}}, Containers: []task.Container{web}}
				if tc.begins {
					s.Tasks = []task.Task{{ID: "new", ContainerID: container, Container: "web", GPUs: []string{gpu}, State: task.Running, Start: task.Mark{Time: now}, Deadline: now.Add(20 * time.Millisecond)}}
				}
				k.Snapshot(now, &s, nil)
				k.Step(now, core.Around{GuardianUp: true, MayHold: true})
				for e := k.Effects(); !e.Empty(); e = k.Effects() {
					if len(e.Actions)+len(e.Divide) > 0 {
						t.Errorf("it acts: %+v %+v", e.Actions, e.Divide)
					}
				}
				if len(book.Leases())+len(book.Exemptions()) > 0 {
					t.Errorf("still open: %+v %+v", book.Leases(), book.Exemptions())
				}
			}
			looks(book)
			if book.Changed() || !book.Lapsed() {
				t.Errorf("must be written at once: %v, later: %v", book.Changed(), book.Lapsed())
			}
			again, err := lease.Decode(disk, t0.Add(tc.after))
			if err != nil {
				t.Fatal(err)
			}
			looks(again)
		})
	}
}

// A pause that could not be written changes nothing: neither an earlier release nor an earlier pause.
func TestAPauseThatFailsChangesNothing(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	released := lease.Exemption{ContainerID: "id-web", Tasks: []string{"t"}, Reason: "released", Since: now}
	full := errors.New("disk full")
	look := func(k *core.Core, at time.Time) {
		k.Snapshot(at, &task.Snapshot{Run: "r", Sequence: 1, Time: at, Health: task.Health{DeviceUp: true, EngineUp: true},
			GPUs: []task.GPU{{UUID: "GPU-0", MemoryTotal: 100}}, Containers: []task.Container{{ID: "id-web", Name: "web", Spec: task.Spec{Managed: true}}},
			Tasks: []task.Task{{ID: "t", ContainerID: "id-web", Container: "web", GPUs: []string{"GPU-0"}, State: task.Running, Start: task.Mark{Time: now}}}}, nil)
		k.Step(at, core.Around{GuardianUp: true, MayHold: true})
	}
	fresh := func() (*lease.Book, *core.Core) {
		book := lease.New()
		k := core.New(core.Options{
			Node: "n1", Config: config.Config{}.WithDefaults(), Leases: book, History: estimate.New(),
			MaxSnapshotAge: 10 * time.Second, HoldLease: 30 * time.Second, FetchEvery: time.Hour,
		}, now)
		look(k, now)
		return book, k
	}
	t.Run("released before", func(t *testing.T) {
		book, k := fresh()
		book.Exempt(released)
		kept, err := k.AskPause(now, "ann", "web")
		if err != nil {
			t.Fatal(err)
		}
		if err := kept(full); !errors.Is(err, full) {
			t.Errorf("it answers %v", err)
		}
		if e, ok := book.Exemption("id-web"); !ok || e.Reason != released.Reason || len(book.Leases()) > 0 {
			t.Errorf("%+v %v, leases %+v", e, ok, book.Leases())
		}
	})
	t.Run("paused before", func(t *testing.T) {
		book, k := fresh()
		ask := func(at time.Time, who string, disk error) {
			t.Helper()
			kept, err := k.AskPause(at, who, "web")
			if err != nil {
				t.Fatal(err)
			}
			if err := kept(disk); !errors.Is(err, disk) {
				t.Errorf("it answers %v", err)
			}
		}
		ask(now, "ann", nil)
		before, later := book.Leases(), now.Add(time.Minute)
		look(k, later)
		ask(later, "bob", full)
		if after := book.Leases(); len(before) != 1 || !slices.Equal(after, before) {
			t.Errorf("leases %+v, were %+v", after, before)
		}
		ask(later, "bob", nil)
		if after := book.Leases(); len(after) != 1 || after[0].By != "bob" || !after[0].Expires.Equal(before[0].Expires.Add(time.Minute)) {
			t.Errorf("renewed it is %+v, was %+v", after, before)
		}
	})
	t.Run("no room", func(t *testing.T) {
		book, k := fresh()
		book.Exempt(released)
		for i := range 1000 {
			book.Fire(lease.Lease{Wish: lease.Pause, Target: "id-web", Fingerprint: fmt.Sprint(i), StartsAt: now, Opened: now, Expires: now.Add(time.Hour)})
		}
		if _, err := k.AskPause(now, "ann", "web"); err == nil {
			t.Fatal("it is not refused")
		}
		if _, ok := book.Exemption("id-web"); !ok {
			t.Error("the release is taken back")
		}
	})
}
