package core_test

import (
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
