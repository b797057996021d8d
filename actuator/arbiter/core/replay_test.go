package core_test

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/allocator"
	"github.com/laxity/laxity/actuator/allocator/ledger"
	"github.com/laxity/laxity/actuator/arbiter/core"
	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/enforce/memory"
	"github.com/laxity/laxity/actuator/estimate"
	"github.com/laxity/laxity/actuator/lease"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/exporter/task"
)

func drawnConfig(i int) config.Config {
	c := config.Config{Policy: []string{"edf", "llf", "fifo", "p3", "edf", "edf"}[i],
		Arbitrate: []config.Arbitration{config.Auto, config.Always, config.Auto, config.Always, config.Never, config.Always}[i],
		MaxHold:   []time.Duration{0, time.Minute, 20 * time.Second, 0, 0, 10 * time.Second}[i], Lease: []time.Duration{0, 30 * time.Second, 0, 0, time.Minute, 0}[i]}
	if i == 5 {
		c.MemoryShare, c.BreakerActions = allocator.Fair, 20
	}
	return c.WithDefaults()
}

// replay is a core in a drawn world: it carries effects out at once.
type replay struct {
	*testing.T
	w        *drawn
	began    time.Time
	core     *core.Core
	ledger   *ledger.Ledger // nil: memory is not planned
	guarded  bool
	swaps    bool
	dry      *drawnDry
	leases   *lease.Book
	journal  map[string]bool
	snap     *task.Snapshot
	inbox    []core.Message
	fetching bool
	actions  []core.Action
	divides  []core.Division
	part     []string
	lines    []string
}

// drawnDry remembers what a dry run would have done.
type drawnDry struct {
	paused map[string]bool
	calls  uint64
}

func newReplay(t *testing.T, seed uint64) *replay {
	w := drawWorld(seed)
	r := &replay{T: t, journal: map[string]bool{}, w: w, began: w.now, leases: lease.New()}
	dry := seed%11 == 0
	r.ledger = ledger.New(ledger.Options{Now: func() time.Time { return w.now }, Alive: func(int, int) bool { return true }})
	r.swaps, r.guarded = seed%3 == 0 && !dry, seed%3 != 1 && !dry
	if dry {
		r.dry = &drawnDry{paused: map[string]bool{}}
	}
	r.core = core.New(core.Options{
		Node: "here", Config: drawnConfig(int(seed % 6)), Leases: r.leases, History: estimate.New(), DryRun: dry,
		Divides: seed%2 == 0, Swaps: r.swaps, MaxSnapshotAge: 10 * time.Second, HoldLease: 30 * time.Second, FetchEvery: 50 * time.Millisecond,
	}, w.now)
	if r.swaps {
		r.core.Swapped(w.now, w.swapped())
	}
	return r
}

func (r *replay) around() core.Around {
	a := core.Around{MayHold: true, Inbox: len(r.inbox), EngineCalls: r.w.calls}
	if r.dry != nil {
		a.EngineCalls = r.dry.calls
	}
	if r.guarded {
		a.Guard = &core.Guard{}
	}
	if r.guarded || r.swaps {
		a.Ledger = core.Ledger{Parts: r.ledger.Parts(), Waiting: r.ledger.Waiting(), Evict: r.ledger.Evict()}
	}
	return a
}

// effects carries out what is to be done at once, and remembers the rest.
func (r *replay) effects() {
	for e := r.core.Effects(); !e.Empty(); e = r.core.Effects() {
		for _, d := range e.Decisions {
			r.part = append(r.part, fmt.Sprintf("%.3f %s %s %s %s by=%s alert=%s/%s gpus=%v tasks=%v snap=%d bytes=%d | %s | %s", d.Time.Sub(r.began).Seconds(), d.Kind, d.Result, d.Container,
				d.Cause, d.By, d.Alert, d.Status, d.GPUs, d.Tasks, d.Snapshot, d.Bytes, d.Reason, d.Error))
		}
		for _, d := range e.Drop {
			delete(r.journal, d.ContainerID)
			r.core.Dropped(r.w.now, d, nil)
		}
		if m := e.Memory; m != nil {
			r.ledger.Update(m.Facts)
			if !m.Blind {
				r.core.Allocations(r.w.now, r.ledger.Events())
			}
		}
		r.divides, r.actions = append(r.divides, e.Divide...), append(r.actions, e.Actions...)
		r.fetching = r.fetching || e.Fetch
	}
}

func (r *replay) drain() {
	r.effects()
	slices.Sort(r.part)
	r.lines, r.part = append(r.lines, r.part...), nil
}

func (r *replay) step() {
	r.core.Step(r.w.now, r.around())
	r.drain()
}

func (r *replay) take() {
	s := r.w.snapshot()
	starts := map[int]uint64{}
	for _, pid := range core.PIDs(s) {
		if start, lives := r.w.start(pid); lives {
			starts[pid] = start
		}
	}
	if own := r.core.Snapshot(r.w.now, s, starts); own != nil {
		r.snap = own
	}
}

func (r *replay) carryOut(a core.Action) core.Result {
	res := core.Result{Action: a, Started: r.w.now}
	if a.Kind == plan.Pause || a.Kind == plan.SwapOut {
		for _, id := range a.Tasks {
			if !slices.ContainsFunc(r.snap.Tasks, func(t task.Task) bool { return t.ID == id && t.State.Unfinished() }) {
				res.Err = core.ErrOvertaken
			}
		}
	}
	id := a.ContainerID
	switch {
	case res.Err != nil:
	case a.Kind == plan.Pause && r.dry != nil:
		res.Err = r.dryPause(id)
	case a.Kind == plan.Pause:
		res.Err = r.w.pause(id)
	case a.Kind == plan.Unpause && r.dry != nil:
		res.Err = enforce.ErrForeign
		if r.dry.paused[id] {
			delete(r.dry.paused, id)
			r.dry.calls++
			res.Err = nil
		}
	case a.Kind == plan.Unpause:
		res.Err = r.w.unpause(id)
	case a.Kind == core.AskSwap:
		res.Err = r.w.can(id)
	case a.Kind == plan.SwapOut:
		if a.Standing == plan.Ours {
			if err := r.w.unpause(id); err != nil && !errors.Is(err, enforce.ErrForeign) {
				res.Err = fmt.Errorf("release before swapping out: %w", err)
				break
			}
		}
		res.Swap, res.Err = r.w.suspend(id, a.Container, a.Reason)
	case a.Kind == plan.SwapIn:
		res.Swap, res.Err = r.w.resume(id, func(need map[string]uint64) error { return r.ledger.Reserve(id, need) })
		r.ledger.Release(id)
	default:
		res.Status, res.Err = r.w.status(id)
		if r.dry != nil && res.Err == nil && r.dry.paused[id] {
			res.Status.Paused = true
		}
	}
	switch b := r.w.engine[id]; {
	case a.Kind != plan.Pause && a.Kind != plan.Unpause && a.Kind != plan.SwapOut || r.dry != nil:
	case b != nil && b.recorded:
		r.journal[id] = true
	default:
		delete(r.journal, id)
	}
	res.OnRecord = r.journal[id]
	res.Swapped, res.SwappedKnown = r.w.swapped(), true
	return res
}

func (r *replay) dryPause(id string) error {
	if r.dry.paused[id] {
		return nil
	}
	s, err := r.w.status(id)
	switch {
	case err != nil:
		return err
	case s.Paused:
		return enforce.ErrForeign
	}
	r.dry.paused[id] = true
	r.dry.calls++
	return nil
}

// settle lets everything come to its end.
func (r *replay) settle() {
	for n := 0; ; n++ {
		switch {
		case len(r.actions) > 0:
			all := r.actions
			r.actions = nil
			slices.SortFunc(all, func(x, y core.Action) int { return cmp.Compare(x.ContainerID, y.ContainerID) })
			var results []core.Result
			for _, a := range all {
				results = append(results, r.carryOut(a))
			}
			for _, res := range results {
				r.core.Finished(r.w.now, res)
				r.effects()
			}
		case len(r.divides) > 0:
			all := r.divides
			r.divides = nil
			slices.SortFunc(all, func(x, y core.Division) int { return cmp.Compare(x.GPU, y.GPU) })
			for _, d := range all {
				failed := map[core.Process]bool{}
				var results []core.ChangeResult
				for _, c := range d.Changes {
					if failed[c.Process] {
						results = append(results, core.ChangeResult{Skipped: true})
						continue
					}
					gone, none, unsettled, own, err := r.w.change(c.Process.PID)
					res := core.ChangeResult{Err: err, Gone: gone, NoGroup: none && c.Kind != core.Restore, Unsettled: unsettled && c.Kind != core.Restore, Own: own && c.Kind != core.Restore}
					failed[c.Process] = err != nil || gone || res.NoGroup
					results = append(results, res)
				}
				r.core.Divided(r.w.now, d.GPU, results)
				r.effects()
			}
		case r.fetching:
			r.fetching = false
			if r.w.away {
				r.core.Fetched(r.w.now, errDrawn)
				break
			}
			r.take()
			r.core.Fetched(r.w.now, nil)
			for _, m := range r.inbox {
				r.core.Alerts(r.w.now, m)
			}
			r.inbox = nil
		default:
			return
		}
		if n > 40 {
			r.drain()
			continue // nothing new
		}
		r.w.now = r.w.now.Add(5 * time.Millisecond)
		r.step()
	}
}

func (r *replay) turn(i int) {
	w := r.w
	s := w.turn()
	delete(r.journal, s.guardian)
	if len(s.alerts) > 0 {
		m := core.Message{Received: w.now}
		for _, d := range s.alerts {
			m.Alerts = append(m.Alerts, core.Alert{Name: d.name, Action: d.action, Fingerprint: d.key(), Resolved: d.status == "resolved", StartsAt: d.at,
				Labels: map[string]string{"alertname": d.name, "action": d.action, "gpu": d.gpu, "container": d.container}})
		}
		if i%7 == 0 {
			m.Truncated = 3
		}
		r.inbox = append(r.inbox, m)
		r.core.Refetch()
	}
	if s.stream {
		r.take()
	}
	if s.pause != "" {
		kept, err := r.core.AskPause(w.now, "ann", s.pause)
		if err == nil {
			err = kept(nil)
		}
		r.lines = append(r.lines, fmt.Sprint("asked pause: ", err))
	}
	if s.release != "" {
		kept, err := r.core.AskRelease(w.now, "ann", s.release)
		if err == nil {
			kept(nil)
		}
		r.lines = append(r.lines, fmt.Sprint("asked release: ", err))
	}
	if s.configure > 0 {
		r.core.Configure(w.now, drawnConfig(s.configure-1))
	}
	w.waiting = slices.DeleteFunc(w.waiting, func(q drawnRequest) bool {
		return r.ledger.Decide(memory.Request{ContainerID: q.container, PID: q.pid, TID: q.pid, GPU: q.gpu, Bytes: q.bytes, Function: "f",
			Held: q.held, Limit: q.limit, Since: q.since}).Verdict != memory.Wait
	})
	r.step()
	r.settle()
	if i%50 == 49 {
		raw, err := json.Marshal(r.core.State())
		if err != nil {
			r.Fatal(err)
		}
		r.lines = append(r.lines, string(raw))
	}
}

// TestReplay replays drawn worlds and compares every decision, and now and then the whole
// state, with what was decided before: testdata/replay was recorded with the actuator as it was
// before its decisions had a package of their own, and 57 worlds came out alike, line by line. A
// change of behaviour is meant to show here: UPDATE_GOLDEN=1 records anew; read the
// difference with TRACE=FOLDER, which writes the lines there.
func TestReplay(t *testing.T) {
	worlds := uint64(12)
	if testing.Short() {
		worlds = 2
	}
	for seed := range worlds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := newReplay(t, seed)
			for i := range 1500 {
				r.turn(i)
			}
			if dir := os.Getenv("TRACE"); dir != "" {
				if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(seed)), []byte(strings.Join(r.lines, "\n")), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			path := filepath.Join("testdata", "replay", fmt.Sprint(seed, ".gz"))
			if os.Getenv("UPDATE_GOLDEN") != "" {
				store(t, path, r.lines)
			}
			want := read(t, path)
			for i := range min(len(want), len(r.lines)) {
				if want[i] != r.lines[i] {
					t.Fatalf("line %d of %d:\nwant %s\ngot  %s", i, len(want), want[i], r.lines[i])
				}
			}
			if len(want) != len(r.lines) {
				t.Errorf("%d lines, want %d", len(r.lines), len(want))
			}
		})
	}
}

func store(t *testing.T, path string, lines []string) {
	t.Helper()
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err == nil {
		_, err = z.Write([]byte(strings.Join(lines, "\n")))
	}
	if err = errors.Join(err, z.Close(), os.WriteFile(path, b.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) []string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(raw), "\n")
}
