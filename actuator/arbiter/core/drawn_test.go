package core_test

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/exporter/task"
)

// drawn is a node whose containers, alerts, persons and faults are drawn from a seed. What
// becomes of a call depends on the seed and on which call of its kind it is for its subject,
// so that two programs that decide alike see alike.
type drawn struct {
	seed       uint64
	rng        *rand.Rand
	now        time.Time
	sequence   uint64
	gpus       []task.GPU
	containers []task.Container
	tasks      []task.Task
	ended      []task.Task
	serial     int

	engine  map[string]*drawnBox
	out     map[string]enforce.Swapped
	away    bool
	down    bool
	counts  map[string]int
	calls   uint64
	firing  map[string]drawnAlert
	waiting []drawnRequest
}

type drawnBox struct {
	paused, recorded bool
	started          time.Time
}

type drawnAlert struct {
	name, action, gpu, container, status string
	at                                   time.Time
}

func (a drawnAlert) key() string { return a.name + a.gpu + a.container }

// drawnRequest asks for GPU memory.
type drawnRequest struct {
	pid       int
	container string
	gpu       string
	bytes     uint64
	held      uint64
	limit     uint64
	since     time.Time
}

// stimuli are what happens besides the facts.
type stimuli struct {
	alerts    []drawnAlert
	pause     string // a person asks
	release   string
	guardian  string // releases it
	configure int    // 0: no; else which
	stream    bool   // the snapshot comes by the stream
	requests  []drawnRequest
}

func drawWorld(seed uint64) *drawn {
	w := &drawn{
		seed: seed, rng: rand.New(rand.NewPCG(seed, 7)), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		engine: map[string]*drawnBox{}, out: map[string]enforce.Swapped{}, counts: map[string]int{}, firing: map[string]drawnAlert{},
	}
	for i := range 1 + w.rng.IntN(2) {
		w.gpus = append(w.gpus, task.GPU{UUID: fmt.Sprintf("GPU-%d", i), Index: i, Name: "drawn", MemoryTotal: 1000 << 20, MemoryUsed: 10 << 20})
	}
	return w
}

// chance is one in n, by the seed and the count of calls of this name.
func (w *drawn) chance(name string, n uint64) bool {
	w.counts[name]++
	h := fnv.New64a()
	fmt.Fprint(h, w.seed, name, w.counts[name])
	return h.Sum64()%n == 0
}

func (w *drawn) one(n int) bool { return w.rng.IntN(n) == 0 }

func (w *drawn) pick() (task.Container, bool) {
	if len(w.containers) == 0 {
		return task.Container{}, false
	}
	return w.containers[w.rng.IntN(len(w.containers))], true
}

// turn lets time pass and things happen.
func (w *drawn) turn() (s stimuli) {
	w.now = w.now.Add(time.Duration(1+w.rng.IntN(300)) * time.Millisecond)
	if w.one(50) {
		w.now = w.now.Add(time.Duration(w.rng.IntN(40)) * time.Second)
	}
	changed := false
	if len(w.containers) < 6 && w.one(8) {
		w.begin()
		changed = true
	}
	for _, c := range slices.Clone(w.containers) {
		if w.engine[c.ID].paused {
			continue
		}
		has := slices.IndexFunc(w.tasks, func(t task.Task) bool { return t.ContainerID == c.ID })
		switch {
		case has < 0 && w.one(6):
			w.task(c)
			changed = true
		case has >= 0 && w.one(15):
			w.end(has)
			changed = true
		case has < 0 && w.one(40):
			w.remove(c.ID)
			changed = true
		}
	}
	w.measure()
	if w.one(12) {
		s.alerts = append(s.alerts, w.alert())
		if w.one(4) {
			s.alerts = append(s.alerts, w.alert())
		}
	}
	if c, ok := w.pick(); ok {
		b := w.engine[c.ID]
		pause := w.one(60)
		release := !pause && w.one(60)
		switch {
		case pause:
			s.pause = c.Name
		case release:
			s.release = c.Name
		case w.one(60) && b.paused: // a person unpauses
			b.paused, changed = false, true
		case w.one(90) && !b.paused:
			b.paused, changed = true, true
		case w.one(90) && b.recorded:
			b.paused, b.recorded, changed = false, false, true
			s.guardian = c.ID
		}
		if c.Spec.GPUMemory > 0 && !w.engine[c.ID].paused && w.one(10) {
			gpu := c.VisibleGPUs[0]
			w.serial++
			w.waiting = append(w.waiting, drawnRequest{pid: c.PID, container: c.ID, gpu: gpu, bytes: uint64(10+w.rng.IntN(400)) << 20,
				held: c.MemoryUsed[gpu], limit: c.Spec.GPUMemory, since: w.now})
		}
	}
	if w.one(40) {
		w.away = !w.away
	}
	if w.one(60) {
		w.down, changed = !w.down, true
	}
	if w.one(80) {
		s.configure = 1 + w.rng.IntN(6)
	}
	if changed {
		w.sequence++
	}
	s.stream = !w.away && (changed || w.one(3))
	s.requests = w.waiting
	return s
}

func (w *drawn) begin() {
	w.serial++
	id := fmt.Sprintf("%064x", w.serial)
	c := task.Container{ID: id, Name: fmt.Sprintf("c%d", w.serial), Image: fmt.Sprintf("image%d", w.serial%3), PID: 1000 * w.serial,
		Spec: task.Spec{Managed: !w.one(6), Release: task.ReleaseProcess}, MemoryUsed: map[string]uint64{}, SMUtilization: map[string]float64{}}
	switch w.rng.IntN(5) {
	case 0:
		c.Spec.Class = task.ClassBatch
	case 1:
		c.Spec.Release, c.Spec.Deadline = task.ReleaseBusy, task.SecondsOf(time.Duration(20+w.rng.IntN(200))*time.Millisecond)
	default:
		c.Spec.Deadline = task.SecondsOf(time.Duration(1+w.rng.IntN(30)) * time.Second)
	}
	if w.one(5) {
		c.Spec.Share = 0.3
	}
	c.Spec.NeverPause = w.one(8)
	c.VisibleGPUs = []string{w.gpus[w.rng.IntN(len(w.gpus))].UUID}
	if w.one(12) && len(w.gpus) > 1 {
		c.VisibleGPUs = []string{w.gpus[0].UUID, w.gpus[1].UUID}
	}
	if w.one(3) {
		c.Spec.GPUMemory = uint64(100+w.rng.IntN(500)) << 20
	}
	w.containers = append(w.containers, c)
	w.engine[id] = &drawnBox{started: w.now}
}

func (w *drawn) task(c task.Container) {
	w.serial++
	t := task.Task{ID: fmt.Sprintf("t%d", w.serial), PID: c.PID + 1 + w.rng.IntN(2), Container: c.Name, ContainerID: c.ID, GPUs: c.VisibleGPUs,
		State: task.Running, Start: task.Mark{Time: w.now, Source: task.SourceUprobe}}
	if c.Spec.Deadline > 0 {
		t.Deadline = w.now.Add(c.Spec.Deadline.Duration())
	}
	w.tasks = append(w.tasks, t)
	i := slices.IndexFunc(w.containers, func(b task.Container) bool { return b.ID == c.ID })
	if !slices.ContainsFunc(w.containers[i].Processes, func(p task.Process) bool { return p.PID == t.PID }) {
		w.containers[i].Processes = append(slices.Clone(w.containers[i].Processes), task.Process{PID: t.PID, GPUs: c.VisibleGPUs})
		slices.SortFunc(w.containers[i].Processes, func(a, b task.Process) int { return cmp.Compare(a.PID, b.PID) })
	}
}

func (w *drawn) end(i int) {
	t := w.tasks[i]
	t.State, t.End = task.Ended, &task.Mark{Time: w.now}
	w.ended = append([]task.Task{t}, w.ended[:min(len(w.ended), 20)]...)
	w.tasks = slices.Delete(w.tasks, i, i+1)
}

func (w *drawn) remove(id string) {
	w.containers = slices.DeleteFunc(w.containers, func(c task.Container) bool { return c.ID == id })
	w.waiting = slices.DeleteFunc(w.waiting, func(r drawnRequest) bool { return r.container == id })
	delete(w.engine, id)
	delete(w.out, id)
}

// measure draws what the device says.
func (w *drawn) measure() {
	for i := range w.gpus {
		w.gpus[i].Utilization, w.gpus[i].MemoryUsed = task.Ratio(float64(w.rng.IntN(11))/10), 10<<20
	}
	for i := range w.containers {
		c := &w.containers[i]
		used, sm := map[string]uint64{}, map[string]float64{}
		for _, g := range c.VisibleGPUs {
			held := c.MemoryUsed[g]
			if w.one(20) {
				held = uint64(w.rng.IntN(450)) << 20
			}
			if _, out := w.out[c.ID]; out {
				held = 0
			}
			used[g], sm[g] = held, float64(w.rng.IntN(6))/10
			for j := range w.gpus {
				if w.gpus[j].UUID == g {
					w.gpus[j].MemoryUsed = min(w.gpus[j].MemoryUsed+held, w.gpus[j].MemoryTotal)
				}
			}
		}
		c.MemoryUsed, c.SMUtilization = used, sm
	}
}

func (w *drawn) alert() drawnAlert {
	if len(w.firing) > 0 && w.one(2) {
		keys := []string{}
		for k := range w.firing {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		a := w.firing[keys[w.rng.IntN(len(keys))]]
		if w.one(2) {
			a.status = "resolved"
			delete(w.firing, a.key())
		}
		return a
	}
	a := drawnAlert{status: "firing", at: w.now}
	a.name = []string{"Contention", "Contention", "Contention", "Pressure", "Pause", "Expedite", "Drain", "Tell", "Odd"}[w.rng.IntN(9)]
	a.action = map[string]string{"Contention": "arbitrate", "Pressure": "relieve", "Pause": "pause", "Expedite": "expedite", "Drain": "drain", "Tell": "", "Odd": "sing"}[a.name]
	a.gpu = w.gpus[w.rng.IntN(len(w.gpus))].UUID
	if c, ok := w.pick(); ok && (a.action == "pause" || a.action == "expedite") {
		a.gpu, a.container = "", c.Name
	}
	w.firing[a.key()] = a
	return a
}

func (w *drawn) snapshot() *task.Snapshot {
	s := &task.Snapshot{Run: "run", Sequence: w.sequence, Time: w.now, Node: "here", Health: task.Health{DeviceUp: true, EngineUp: !w.down}}
	s.GPUs, s.Tasks, s.Ended = slices.Clone(w.gpus), slices.Clone(w.tasks), slices.Clone(w.ended)
	for _, c := range w.containers {
		c.Paused = w.engine[c.ID].paused
		s.Containers = append(s.Containers, c)
	}
	return s
}

// start is as in Options.StartOf.
func (w *drawn) start(pid int) (uint64, bool) {
	return uint64(pid) * 7, slices.ContainsFunc(w.containers, func(c task.Container) bool { return c.PID/1000 == pid/1000 })
}

var errDrawn = errors.New("drawn fault")

func (w *drawn) status(id string) (enforce.Status, error) {
	b := w.engine[id]
	switch {
	case b == nil:
		return enforce.Status{}, enforce.ErrGone
	case w.chance("status"+id, 30):
		return enforce.Status{}, enforce.ErrUnavailable
	}
	return enforce.Status{Running: true, Paused: b.paused, Verified: true, Started: b.started}, nil
}

func (w *drawn) pause(id string) error {
	b := w.engine[id]
	switch {
	case b == nil:
		return enforce.ErrGone
	case b.paused && !b.recorded:
		return enforce.ErrForeign
	case w.chance("fails"+id, 25):
		return errDrawn
	case w.chance("doubtful"+id, 25):
		b.recorded, b.paused = true, w.chance("late"+id, 2)
		return errDrawn
	}
	w.calls++
	b.paused, b.recorded = true, true
	return nil
}

func (w *drawn) unpause(id string) error {
	b := w.engine[id]
	switch {
	case b == nil:
		return nil
	case !b.recorded:
		return enforce.ErrForeign
	case w.chance("unpause"+id, 25):
		return errDrawn
	}
	w.calls++
	b.paused, b.recorded = false, false
	return nil
}

func (w *drawn) can(id string) error {
	switch b := w.engine[id]; {
	case b == nil:
		return enforce.ErrGone
	case w.chance("can"+id, 8):
		return enforce.ErrCannotSwap
	case b.paused:
		return enforce.ErrForeign
	}
	return nil
}

func (w *drawn) suspend(id, name, reason string) (enforce.SwapResult, error) {
	b := w.engine[id]
	if b == nil {
		return enforce.SwapResult{}, enforce.ErrGone
	}
	if b.paused {
		return enforce.SwapResult{}, errDrawn
	}
	i := slices.IndexFunc(w.containers, func(c task.Container) bool { return c.ID == id })
	bytes := w.containers[i].MemoryUsed
	w.out[id] = enforce.Swapped{ContainerID: id, Container: name, Reason: reason, Bytes: bytes, Since: w.now, Stage: enforce.Suspended}
	b.paused = true
	return enforce.SwapResult{Bytes: bytes, Processes: 1, CheckpointSeconds: 0.5}, nil
}

func (w *drawn) resume(id string, room func(map[string]uint64) error) (enforce.SwapResult, error) {
	r, ok := w.out[id]
	if !ok {
		return enforce.SwapResult{}, enforce.ErrForeign
	}
	if room != nil {
		if err := room(r.Bytes); err != nil {
			return enforce.SwapResult{}, fmt.Errorf("%w: %w", enforce.ErrNoRoom, err)
		}
	}
	delete(w.out, id)
	w.engine[id].paused = false
	return enforce.SwapResult{Bytes: r.Bytes, Processes: 1, RestoreSeconds: 0.25}, nil
}

func (w *drawn) swapped() (all []enforce.Swapped) {
	for _, s := range w.out {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b enforce.Swapped) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ContainerID, b.ContainerID))
	})
	return all
}

// change is what becomes of a change of slice or channels.
func (w *drawn) change(pid int) (gone, none, unsettled, own bool, err error) {
	name := fmt.Sprint("change", pid)
	_, lives := w.start(pid)
	switch {
	case !lives:
		return true, false, false, false, nil
	case w.chance(name+"none", 12):
		return false, true, false, false, nil
	case w.chance(name+"err", 30):
		return false, false, false, false, errDrawn
	}
	return false, false, w.chance(name+"unsettled", 12), w.chance(name+"own", 40), nil
}
