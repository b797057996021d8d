package core

import (
	"log/slog"
	"maps"
	"time"

	"github.com/laxity/laxity/exporter/task"
)

// observed is the present snapshot, and the state of fetching it.
type observed struct {
	snap *task.Snapshot
	// conflicts says why the members of gangs disagree, by task.Container.GangID.
	conflicts map[string]string
	// starts are when the processes of managed containers started, by PID, when the snapshot
	// arrived. A process that had ended is absent.
	starts  map[int]uint64
	former  formerRun
	arrived time.Time // when the snapshot arrived, until a plan uses it
	planned time.Time // the same while that plan is made
	began   time.Time
	trouble string // why there is no fresh snapshot
	away    bool   // the trouble is that the exporter does not answer

	fetching bool
	fetchAt  time.Time // do not fetch before
	asked    time.Time // when the fetch under way, or the last, began
}

// formerFor is how long a late snapshot may still come from an ended run of the exporter.
const formerFor = 10 * time.Second

// formerRun is the run of the exporter before the present one.
type formerRun struct {
	name string
	left time.Time // when the first snapshot of the next run came
}

// older reports whether s was made before the present snapshot, independent of the wall clocks of
// exporter and actuator.
func (f *observed) older(s *task.Snapshot, now time.Time) bool {
	switch {
	case f.snap == nil:
		return false
	case s.Run != f.snap.Run:
		return s.Run == f.former.name && now.Sub(f.former.left) < formerFor
	case s.Sequence != f.snap.Sequence:
		return s.Sequence < f.snap.Sequence
	default: // the same facts, seen earlier
		return s.Time.Before(f.snap.Time)
	}
}

// byOurClock returns the snapshot with all times by our own clock, the monotonic one included.
func byOurClock(s *task.Snapshot, now time.Time) *task.Snapshot {
	own := s.At(now)
	if own.Age = s.Age; !s.Time.IsZero() {
		own.Time = now.Add(-s.Age.Duration())
	}
	return own
}

// Snapshot makes s the present snapshot unless s is older than that. starts are when the processes
// of its managed containers started, by PID. It returns the new snapshot with all times by our own
// clock, or nil if s was older.
func (k *Core) Snapshot(now time.Time, s *task.Snapshot, starts map[int]uint64) *task.Snapshot {
	k.now = now
	f := &k.facts
	if s = byOurClock(s, now); f.older(s, now) {
		return nil
	}
	if f.snap != nil && s.Run != f.snap.Run {
		f.former = formerRun{f.snap.Run, now}
	}
	f.snap, f.arrived, f.starts = s, now, starts
	f.conflicts = task.GangConflicts(s.Containers)
	k.history.Observe(s)
	paused := map[string]bool{}
	for _, c := range s.Containers {
		paused[c.ID] = c.Paused
	}
	k.turns.keep(paused)
	k.holds.keep(paused, now)
	return s
}

// PIDs lists the PIDs of the snapshot's processes that may be acted on.
func PIDs(s *task.Snapshot) []int {
	managed, all := map[string]bool{}, map[int]bool{}
	for _, c := range s.Containers {
		if managed[c.ID] = c.Spec.Managed; !c.Spec.Managed {
			continue
		}
		for _, p := range c.Processes {
			all[p.PID] = true
		}
	}
	for _, t := range s.Tasks {
		if managed[t.ContainerID] {
			all[t.PID] = true
		}
	}
	list := make([]int, 0, len(all))
	for pid := range all {
		list = append(list, pid)
	}
	return list
}

// Refetch asks for a snapshot at once: an event waits for facts younger than itself.
func (k *Core) Refetch() { k.facts.fetchAt = time.Time{} }

// Postpone fetches no snapshot for a second: what waits for one cannot be handled now.
func (k *Core) Postpone(now time.Time) { k.facts.fetchAt = now.Add(time.Second) }

// refresh fetches a snapshot when the stream alone is not enough: alerts wait for a younger one; a
// plan waits for a fresh sample, which the stream does not bring if nothing changed; or the last
// snapshot gets old.
func (k *Core) refresh() {
	f, now := &k.facts, k.now
	if f.fetching || now.Before(f.fetchAt) {
		return
	}
	every := 2 * time.Second
	if len(k.holds.byID) > 0 || len(k.memory.waits) > 0 {
		every = 150 * time.Millisecond
	}
	if k.around.Inbox == 0 && f.snap != nil && now.Sub(f.snap.Time) < every && now.Sub(f.asked) < every {
		return
	}
	f.fetching, f.asked = true, now
	f.fetchAt = now.Add(k.o.FetchEvery)
	k.out.Fetch = true
}

// fairChance is how long the first snapshot may take before its absence is reported.
const fairChance = 5 * time.Second

// Fetched handles the answer to Effects.Fetch. err says why there is no snapshot; nil means that
// Snapshot was called with it before. Events that waited for the snapshot are handled after this.
func (k *Core) Fetched(now time.Time, err error) {
	k.now = now
	f := &k.facts
	f.fetching = false
	if err != nil {
		f.fetchAt = now.Add(500 * time.Millisecond)
		// At the start the exporter, in the same process, may need a moment.
		if !f.away && (f.snap != nil || now.Sub(f.began) > fairChance) {
			f.away, f.trouble = true, "no snapshot: "+err.Error()
			k.log(slog.LevelWarn, "no snapshot from the exporter; nothing new is held, and holds end with their leases", "err", err)
		}
		return
	}
	if f.away {
		f.away, f.trouble = false, ""
		k.log(slog.LevelInfo, "the exporter answers")
	}
}

// usable reports whether the snapshot may be acted on.
func (k *Core) usable() bool {
	f, why := &k.facts, k.unusable()
	if why != "" && f.trouble == "" && f.snap != nil {
		k.log(slog.LevelWarn, "not acting", "reason", why)
	}
	if !f.away {
		f.trouble = why
	}
	return why == ""
}

func (k *Core) unusable() string {
	s := k.facts.snap
	switch {
	case s == nil:
		return "there is no snapshot yet"
	case k.now.Sub(s.Time) > k.o.MaxSnapshotAge:
		return "the snapshot is old"
	case !s.Health.DeviceUp:
		return "the exporter cannot read the GPUs"
	case !s.Health.EngineUp:
		return "the exporter cannot read the container engine"
	default:
		return ""
	}
}

// handsOff says why nothing may be held now; empty if it may.
func (k *Core) handsOff() string {
	switch why := k.unusable(); {
	case why != "":
		return "nothing is paused without fresh facts: " + why
	case !k.leadership.leads:
		return k.leadership.why
	case !k.around.MayHold:
		return "no guardian watches, so nothing is held"
	default:
		return k.breaker.open(k.now)
	}
}

// unfinished counts the container's unfinished tasks.
func (k *Core) unfinished(id string) (n int) {
	for _, t := range k.facts.snap.Tasks {
		if t.ContainerID == id && t.State.Unfinished() {
			n++
		}
	}
	return n
}

func memoryShare(g task.GPU) float64 {
	if g.MemoryTotal == 0 {
		return 0
	}
	return float64(g.MemoryUsed) / float64(g.MemoryTotal)
}

// keep forgets containers that are gone, and unpauses that the snapshot confirms.
func (h *holds) keep(paused map[string]bool, now time.Time) {
	maps.DeleteFunc(h.freed, func(id string, _ time.Time) bool { return !paused[id] })
	maps.DeleteFunc(h.retry, func(id string, b backoff) bool {
		_, known := paused[id]
		return !known && now.Sub(b.next) > time.Minute // what fails for one that has ended is not tried faster
	})
}
