package core_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/arbiter/core"
	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/estimate"
	"github.com/laxity/laxity/actuator/lease"
	"github.com/laxity/laxity/exporter/task"
)

// gangWorld is two GPUs with a server and trainers each, and jobs with ranks on them, in one container or in
// several (laxity.gang), whose deadlines may order them one way here and another way there. Calls take a while, and fail at times.
type gangWorld struct {
	*testing.T
	seed       uint64
	rng        *rand.Rand
	core       *core.Core
	now        time.Time
	containers []task.Container
	tasks      []task.Task
	starts     map[int]uint64
	quiet      bool
	flying     map[string]string // by container: the GPU by whose plan it is changed
	calls      []core.Division
	// What is true: who is off, and whose slices are not its own.
	off    map[string]time.Time
	sliced map[string]map[string]time.Duration
	on     map[string]time.Duration
	offs   map[string]int
}

var worldGPUs = []string{"GPU-0", "GPU-1"}

func newGangWorld(t *testing.T, seed uint64) *gangWorld {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	w := &gangWorld{T: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), now: now, starts: map[int]uint64{}, flying: map[string]string{},
		off: map[string]time.Time{}, sliced: map[string]map[string]time.Duration{}, on: map[string]time.Duration{}, offs: map[string]int{}}
	c := config.Config{Policy: "edf", Arbitrate: config.Always}.WithDefaults()
	w.core = core.New(core.Options{Node: "n1", Config: c, Leases: lease.New(), History: estimate.New(), Divides: true, AsOne: true,
		MaxSnapshotAge: 10 * time.Second, HoldLease: 30 * time.Second, FetchEvery: time.Hour}, now)
	for i, gpu := range worldGPUs {
		w.add(fmt.Sprintf("server-%d", i), task.Spec{Managed: true, Class: task.ClassDeadline, Release: task.ReleaseBusy, Deadline: 0.02}, gpu)
		for n := range w.rng.IntN(3) {
			w.add(fmt.Sprintf("trainer-%d-%d", i, n), task.Spec{Managed: true, Class: task.ClassBatch, Release: task.ReleaseProcess}, gpu)
		}
	}
	for n := range 1 + w.rng.IntN(3) {
		w.job(fmt.Sprintf("job-%d", n))
	}
	return w
}

// job makes a job of one container on both GPUs, or of several that are on both together, or on one.
func (w *gangWorld) job(name string) {
	spec := task.Spec{Managed: true, Class: task.ClassBatch, Release: task.ReleaseProcess}
	if w.rng.IntN(2) == 0 {
		spec.Class, spec.Deadline = task.ClassDeadline, 100
	}
	if w.rng.IntN(3) == 0 {
		w.add(name, spec, worldGPUs...)
		return
	}
	spec.Gang = name
	for i := range 2 + w.rng.IntN(2) {
		w.add(fmt.Sprintf("%s-rank-%d", name, i), spec, worldGPUs[(i+w.rng.IntN(2))%2])
	}
}

// unit is what the container is ordered with: its gang, or itself.
func unit(c task.Container) string {
	if c.Spec.Gang != "" {
		return "gang /" + c.Spec.Gang
	}
	return c.ID
}

// members are the containers of a unit, with their processes and GPUs.
func (w *gangWorld) members(of string) (containers, processes int, gpus []string) {
	for _, c := range w.containers {
		if unit(c) != of {
			continue
		}
		containers++
		for _, p := range c.Processes {
			processes++
			gpus = append(gpus, p.GPUs...)
		}
	}
	slices.Sort(gpus)
	return containers, processes, slices.Compact(gpus)
}

// add makes a container with a process on each of these GPUs; at times one process is on all of them.
func (w *gangWorld) add(id string, spec task.Spec, gpus ...string) {
	c := task.Container{ID: id, Name: id, Spec: spec, SMUtilization: map[string]float64{}}
	each := [][]string{gpus}
	if w.rng.IntN(2) == 0 {
		each = nil
		for _, g := range gpus {
			each = append(each, []string{g})
		}
	}
	for _, on := range each {
		pid := 100 + len(w.starts)
		w.starts[pid] = uint64(pid)
		c.Processes = append(c.Processes, task.Process{PID: pid, GPUs: on})
		if spec.Release == task.ReleaseProcess {
			is := task.Task{ID: fmt.Sprint(id, pid), PID: pid, Container: id, ContainerID: id, GPUs: on, State: task.Running, Start: task.Mark{Time: w.now}}
			if spec.Deadline > 0 { // so that the orders on the GPUs may be crossed
				is.Deadline = w.now.Add(time.Duration(1+w.rng.IntN(100)) * time.Second)
			}
			w.tasks = append(w.tasks, is)
		}
	}
	w.containers = append(w.containers, c)
}

func (w *gangWorld) isJob(unit string) bool { return strings.Contains(unit, "job-") }

// facts are the next snapshot: who is on shares its GPU with the others.
func (w *gangWorld) facts() {
	s := &task.Snapshot{Run: "r", Time: w.now, Health: task.Health{DeviceUp: true, EngineUp: true}}
	for i, g := range worldGPUs {
		s.GPUs = append(s.GPUs, task.GPU{UUID: g, Index: i, MemoryTotal: 100, Utilization: 1})
	}
	for _, c := range w.containers {
		c.SMUtilization = map[string]float64{}
		for _, p := range c.Processes {
			for _, g := range p.GPUs {
				if c.SMUtilization[g] = 0.3; c.Spec.Release == task.ReleaseBusy {
					c.SMUtilization[g] = 0.02
				}
			}
		}
		s.Containers = append(s.Containers, c)
	}
	if !w.quiet {
		s.Tasks = slices.Clone(w.tasks)
	}
	w.core.Snapshot(w.now, s, w.starts)
}

// step lets 5 ms pass: some calls end, and the core decides.
func (w *gangWorld) step() {
	w.now = w.now.Add(5 * time.Millisecond)
	if w.now.UnixMilli()%200 == 0 {
		w.facts()
	}
	w.calls = slices.DeleteFunc(w.calls, func(d core.Division) bool {
		if w.rng.IntN(3) == 0 {
			return false // it takes longer
		}
		w.carryOut(d)
		return true
	})
	w.core.Step(w.now, core.Around{GuardianUp: true, MayHold: true})
	for e := w.core.Effects(); !e.Empty(); e = w.core.Effects() {
		for _, d := range e.Divide {
			for _, c := range d.Changes {
				w.expect(d.GPU, c)
			}
			w.calls = append(w.calls, d)
		}
	}
	for _, c := range w.containers {
		if until, off := w.off[unit(c)]; off && !w.now.Before(until) { // the lease
			delete(w.off, unit(c))
		}
		if _, off := w.off[unit(c)]; !off {
			w.on[c.ID] += 5 * time.Millisecond
		}
	}
}

// expect is what holds of every change: a job is changed as a whole, one change at a time.
func (w *gangWorld) expect(gpu string, c core.Change) {
	if (c.Gang != nil) != w.isJob(c.ContainerID) {
		w.Fatalf("seed %d: %+v", w.seed, c)
	}
	if by, flying := w.flying[c.ContainerID]; flying && by != gpu {
		w.Fatalf("seed %d: %s is changed by %s and %s at once", w.seed, c.ContainerID, by, gpu)
	}
	w.flying[c.ContainerID] = gpu
	if c.Gang == nil {
		return
	}
	if _, processes, gpus := w.members(c.ContainerID); len(c.Gang.Processes) != processes || !slices.Equal(c.Gang.GPUs, gpus) {
		w.Fatalf("seed %d: a part of %s: %+v", w.seed, c.ContainerID, c.Gang)
	}
}

func (w *gangWorld) carryOut(d core.Division) {
	var results []core.ChangeResult
	failed := map[string]bool{}
	for _, c := range d.Changes {
		id := c.ContainerID
		if c.Gang == nil {
			id += fmt.Sprint(c.Process.PID)
		}
		r := core.ChangeResult{Skipped: failed[id]}
		if delete(w.flying, c.ContainerID); !r.Skipped && !w.quiet && w.rng.IntN(40) == 0 {
			r.Err = errors.New("the driver refuses")
			if failed[id] = true; w.rng.IntN(2) == 0 {
				w.change(c) // it came into effect all the same
			}
		} else if !r.Skipped {
			w.change(c)
		}
		results = append(results, r)
	}
	w.core.Divided(w.now, d.GPU, results)
}

// change is what a call does, and of a job that is all of it.
func (w *gangWorld) change(c core.Change) {
	is := map[string]time.Duration{}
	switch {
	case c.Gang != nil:
		is = maps.Clone(c.Gang.Slices)
	case c.Kind != core.Restore && c.Stands.Slice != 0:
		is["own"] = c.Stands.Slice
	}
	if w.sliced[c.ContainerID] = is; len(is) == 0 {
		delete(w.sliced, c.ContainerID)
	}
	_, was := w.off[c.ContainerID]
	if c.Stands.Off {
		w.off[c.ContainerID] = c.Stands.Until
	} else {
		delete(w.off, c.ContainerID)
	}
	if c.Stands.Off && !was {
		w.offs[c.ContainerID]++
	}
}

// Whatever is drawn, and whatever fails: a job is changed as a whole, by one GPU's plan at a time; everybody
// computes in every few seconds, so that nobody waits for ever; and in the end all is everybody's own.
func TestJobsOnSeveralGPUs(t *testing.T) {
	offs := map[bool]int{} // by whether they are several containers
	for seed := range uint64(10) {
		w := newGangWorld(t, seed)
		w.facts()
		for range 3 {
			clear(w.on)
			for range 800 {
				w.step()
			}
			for _, c := range w.containers {
				if w.on[c.ID] < 100*time.Millisecond {
					t.Errorf("seed %d: %s was on for %v in 4 s", seed, c.ID, w.on[c.ID])
				}
			}
		}
		for id, n := range w.offs {
			if containers, _, _ := w.members(id); w.isJob(id) {
				offs[containers > 1] += n
			}
		}
		w.quiet = true
		w.core.Configure(w.now, config.Config{Policy: "edf", Arbitrate: config.Never}.WithDefaults())
		w.facts()
		for range 2000 {
			w.step()
		}
		if len(w.off) > 0 || len(w.sliced) > 0 || len(w.calls) > 0 {
			t.Errorf("seed %d: left are off %v, slices %v, calls %v", seed, w.off, w.sliced, w.calls)
		}
	}
	if offs[false] == 0 || offs[true] == 0 {
		t.Errorf("jobs of one container were off %d times, those of several %d times: nothing was tested", offs[false], offs[true])
	}
}
