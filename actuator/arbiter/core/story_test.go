package core_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/arbiter/core"
	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/estimate"
	"github.com/laxity/laxity/actuator/lease"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/actuator/record"
	"github.com/laxity/laxity/exporter/task"
)

// A story is what happens on a node with one GPU, and what the core says to it: decisions as
// "kind result container: reason", and what is to be done as "→ …". Nothing else may be said. The
// policy is fifo: who started first computes.
type story []chapter

type chapter struct {
	at    string
	event func(*teller)
	says  []string
}

// teller tells a story to a core.
type teller struct {
	*testing.T
	core       *core.Core
	began      time.Time
	now        time.Time
	around     core.Around
	containers []task.Container
	tasks      []task.Task
	away       bool
	readOnly   bool
	action     core.Action
	hold       record.Hold
	said       []string
}

func (s story) tell(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c := config.Config{Policy: "fifo"}.WithDefaults()
	d := &teller{T: t, began: began, now: began, around: core.Around{GuardianUp: true, MayHold: true}, core: core.New(core.Options{
		Node: "n1", Config: c, Leases: lease.New(), History: estimate.New(), MaxSnapshotAge: 10 * time.Second, HoldLease: 30 * time.Second, FetchEvery: time.Hour,
	}, began)}
	for i, chapter := range s {
		after, err := time.ParseDuration(chapter.at)
		if err != nil {
			t.Fatal(err)
		}
		d.now = began.Add(after)
		d.said = nil
		if chapter.event != nil {
			chapter.event(d)
			d.listen()
		}
		if !d.away {
			d.facts()
		}
		d.core.Step(d.now, d.around)
		d.listen()
		if !slices.Equal(d.said, chapter.says) {
			t.Fatalf("chapter %d, at %s:\nsays %s\nwant %s", i+1, chapter.at, strings.Join(d.said, "\n     "), strings.Join(chapter.says, "\n     "))
		}
	}
}

func (d *teller) facts() {
	s := &task.Snapshot{Run: "r", Time: d.now, Health: task.Health{DeviceUp: true, EngineUp: true},
		GPUs: []task.GPU{{UUID: "GPU-0", MemoryTotal: 100, MemoryUsed: 10, Utilization: 1}}}
	s.Containers, s.Tasks = slices.Clone(d.containers), slices.Clone(d.tasks)
	d.core.Snapshot(d.now, s, nil)
}

// listen writes down what the core says.
func (d *teller) listen() {
	for e := d.core.Effects(); !e.Empty(); e = d.core.Effects() {
		for _, is := range e.Decisions {
			line := fmt.Sprintf("%s %s", is.Kind, is.Result)
			if is.Container != "" {
				line += " " + is.Container
			}
			if line += ": " + is.Reason; is.Error != "" {
				line += " (" + is.Error + ")"
			}
			d.said = append(d.said, line)
		}
		for _, r := range e.Renew {
			d.said = append(d.said, fmt.Sprintf("→ keep %s on record until %v", r.Hold.Container, r.Hold.Expires.Sub(d.began)))
			if d.readOnly {
				d.core.NotRenewed(r, errors.New("read-only"))
			}
		}
		for _, x := range e.Drop {
			d.said = append(d.said, "→ take it off the record")
			d.core.Dropped(d.now, x, nil)
		}
		for _, a := range e.Actions {
			d.action = a
			line := fmt.Sprintf("→ %s %s", a.Kind, a.Container)
			if a.Reason != "" {
				line += ": " + a.Reason
			}
			d.said = append(d.said, line)
		}
	}
}

func (d *teller) box(name string) *task.Container {
	i := slices.IndexFunc(d.containers, func(c task.Container) bool { return c.Name == name })
	return &d.containers[i]
}

// What can happen.

// begins starts a container with a task on the GPU.
func begins(name string) func(*teller) {
	return func(d *teller) {
		d.containers = append(d.containers, task.Container{ID: "id-" + name, Name: name, Spec: task.Spec{Managed: true}})
		d.tasks = append(d.tasks, task.Task{ID: "task of " + name, ContainerID: "id-" + name, Container: name, GPUs: []string{"GPU-0"},
			State: task.Running, Start: task.Mark{Time: d.now}, MemoryUsed: map[string]uint64{"GPU-0": 1}})
	}
}

// ends finishes its task.
func ends(name string) func(*teller) {
	return func(d *teller) {
		d.tasks = slices.DeleteFunc(d.tasks, func(t task.Task) bool { return t.Container == name })
	}
}

func alert(status string) func(*teller) {
	return func(d *teller) {
		d.facts()
		d.core.Alerts(d.now, core.Message{Received: d.now, Alerts: []core.Alert{{Name: "GPUContention", Action: "arbitrate", Fingerprint: "f",
			Resolved: status == "resolved", StartsAt: d.began, Labels: map[string]string{"gpu": "GPU-0"}}}})
	}
}

// done is the engine's answer to the last action.
func done(d *teller) { d.answer(core.Result{OnRecord: true}) }

func fails(why string) func(*teller) {
	return func(d *teller) { d.answer(core.Result{Err: errors.New(why)}) }
}

func (d *teller) answer(r core.Result) {
	r.Action, r.Started = d.action, d.now
	if r.Err == nil && (r.Kind == plan.Pause || r.Kind == plan.Unpause) {
		d.box(r.Container).Paused = r.Kind == plan.Pause
		d.hold = r.Hold
	}
	d.core.Finished(d.now, r)
}

// runs is what the engine says when it is asked: it is not paused.
func runs(recorded bool) func(*teller) {
	return func(d *teller) { d.answer(core.Result{Status: enforce.Status{Running: true}, OnRecord: recorded}) }
}

// unpauses is somebody with `docker unpause`.
func unpauses(name string) func(*teller) {
	return func(d *teller) { d.box(name).Paused = false }
}

func asks(who, what, name string) func(*teller) {
	return func(d *teller) {
		if !d.away {
			d.facts()
		}
		var err error
		if what == "pause" {
			var kept func(error) error
			if kept, err = d.core.AskPause(d.now, who, name); err == nil {
				err = kept(nil)
			}
		} else {
			var kept func(error)
			if kept, err = d.core.AskRelease(d.now, who, name); err == nil {
				kept(nil)
			}
		}
		if err != nil {
			d.said = append(d.said, "answer: "+err.Error())
		}
	}
}

// reloads is a person who changes --max-hold.
func reloads(maxHold time.Duration) func(*teller) {
	return func(d *teller) {
		d.core.Configure(d.now, config.Config{Policy: "fifo", MaxHold: maxHold}.WithDefaults())
	}
}

// exporterIsAway: no facts come any more.
func exporterIsAway(d *teller) { d.away = true }

// recordIsReadOnly: no hold on record can be renewed any more.
func recordIsReadOnly(d *teller) { d.readOnly = true }

func guardianIsAway(d *teller) { d.around.GuardianUp, d.around.MayHold = false, false }

func says(lines ...string) []string { return lines }

var nothing []string

// twoContend begins a story: the second of two tasks is to wait for the first.
func twoContend(rest ...chapter) story {
	return append(story{
		{"0s", begins("trainer"), nothing},
		{"1s", begins("other"), nothing},
		{"2s", alert("firing"), says(
			"alert opened: confirmed: 2 unfinished tasks on the GPU",
			"→ pause other: waits for trainer on GPU-0")},
	}, rest...)
}

// oneWaits begins a story: it is paused, and waits.
func oneWaits(rest ...chapter) story {
	return append(twoContend(chapter{"2.02s", done, says("pause done other: waits for trainer on GPU-0")}), rest...)
}

// Two tasks contend, and the second waits until the first has ended.
func TestStoryOfAHold(t *testing.T) {
	oneWaits(
		chapter{"17.5s", nil, says("→ keep other on record until 47.5s")},
		chapter{"25s", ends("trainer"), says("→ unpause other: first in order on GPU-0")},
		chapter{"25.01s", done, says("unpause done other: first in order on GPU-0")},
		chapter{"26s", alert("resolved"), says(
			"alert done: resolved; its lease closes when the snapshot confirms it",
			"lease closed: resolved and confirmed: 1 unfinished task on the GPU")},
	).tell(t)
}

// What a person unpauses is not paused again for its present task.
func TestStoryOfAPersonWhoUnpauses(t *testing.T) {
	oneWaits(
		chapter{"3s", unpauses("other"), says("→ inspect other")},
		chapter{"3.01s", runs(true), says(
			"→ take it off the record",
			"hold closed other: a person unpaused it; it is not paused again for this task")},
		chapter{"5s", nil, nothing},
		chapter{"6s", ends("other"), nothing},
		chapter{"7s", func(d *teller) { d.containers = d.containers[:1]; begins("other")(d) }, says("→ pause other: waits for trainer on GPU-0")},
	).tell(t)
}

// A pause that fails is tried again later, and told once.
func TestStoryOfAnEngineThatFails(t *testing.T) {
	twoContend(
		chapter{"2.1s", fails("engine unavailable"), says("pause failed other: waits for trainer on GPU-0 (engine unavailable)")},
		chapter{"2.2s", nil, nothing},
		chapter{"2.4s", nil, says("→ pause other: waits for trainer on GPU-0")},
		chapter{"2.5s", fails("engine unavailable"), nothing},
		chapter{"3.1s", nil, says("→ pause other: waits for trainer on GPU-0")},
		chapter{"3.2s", done, says("pause done other: waits for trainer on GPU-0")},
	).tell(t)
}

// Nobody starves: who has waited for 30 s computes beside the first from then on.
func TestStoryOfALongWait(t *testing.T) {
	oneWaits(
		chapter{"17.5s", nil, says("→ keep other on record until 47.5s")},
		chapter{"31.9s", nil, nothing},
		chapter{"32s", nil, says("→ unpause other: it has waited for as long as sharing the GPU would have cost it")},
		chapter{"32.01s", done, says("unpause done other: it has waited for as long as sharing the GPU would have cost it")},
		chapter{"2m", nil, nothing},
	).tell(t)
}

// Without facts nothing new is held, and what is held goes on when its lease ends.
func TestStoryOfAnExporterThatGoes(t *testing.T) {
	oneWaits(
		chapter{"3s", exporterIsAway, nothing},
		chapter{"20s", asks("ann", "pause", "trainer"), says("answer: nothing is paused without fresh facts: the snapshot is old")},
		chapter{"31.9s", nil, nothing},
		chapter{"32s", nil, says("→ unpause other: its lease ran out: the reason was not seen for 30s")},
		chapter{"32.01s", done, says("unpause done other: its lease ran out: the reason was not seen for 30s")},
	).tell(t)
}

// A person has a container paused, and releases it.
func TestStoryOfARequest(t *testing.T) {
	story{
		{"0s", begins("trainer"), nothing},
		{"1s", asks("ann", "pause", "trainer"), says(
			"request opened trainer: to be paused until it is released, or for 10m0s",
			"→ pause trainer: ann asks for it")},
		{"1.1s", done, says("pause done trainer: ann asks for it")},
		{"2s", asks("bob", "release", "trainer"), says(
			"request done trainer: released, and not held again for its present tasks",
			"→ unpause trainer: bob released it")},
		{"2.1s", done, says("unpause done trainer: bob released it")},
		{"3s", asks("bob", "release", "trainer"), says("answer: container trainer is not kept from computing")},
	}.tell(t)
}

// Where a guardian has to watch and does not, nobody is held, and who is goes on.
func TestStoryOfAGuardianThatGoes(t *testing.T) {
	oneWaits(
		chapter{"3s", guardianIsAway, says("→ unpause other: no guardian watches, so nothing is held")},
		chapter{"3.1s", done, says("unpause done other: no guardian watches, so nothing is held")},
		chapter{"4s", asks("ann", "pause", "trainer"), says("answer: no guardian watches, so nothing is held")},
	).tell(t)
}

// A hold whose renewal cannot be written counts as not renewed: that is tried again, and it ends with the lease on record.
func TestStoryOfARecordThatCannotBeWritten(t *testing.T) {
	story{
		{"0s", begins("trainer"), nothing},
		{"1s", asks("ann", "pause", "trainer"), says(
			"request opened trainer: to be paused until it is released, or for 10m0s",
			"→ pause trainer: ann asks for it")},
		{"1.5s", done, says("pause done trainer: ann asks for it")},
		{"17s", recordIsReadOnly, says("→ keep trainer on record until 47s")},
		{"18s", nil, says("→ keep trainer on record until 48s")},
		{"30.9s", nil, says("→ keep trainer on record until 1m0.9s")},
		{"31s", nil, says("→ unpause trainer: its lease ran out, and its record could not be renewed")},
	}.tell(t)
}

// A shorter --max-hold ends the holds that are there, too.
func TestStoryOfAShorterMaxHold(t *testing.T) {
	const reloaded = "service done: configuration reloaded"
	asked := says("request opened trainer: to be paused until it is released, or for 10m0s", "→ pause trainer: ann asks for it")
	for name, s := range map[string]story{
		"for others": oneWaits(
			chapter{"5s", reloads(10 * time.Second), says(reloaded)},
			chapter{"11.9s", nil, nothing},
			chapter{"12s", nil, says("→ unpause other: it was held for 10s, as long as is allowed (--max-hold)")}),
		"the pause is under way": twoContend(
			chapter{"2.1s", reloads(10 * time.Second), says(reloaded)},
			chapter{"2.2s", done, says("pause done other: waits for trainer on GPU-0")},
			chapter{"11.9s", nil, nothing},
			chapter{"12s", nil, says("→ unpause other: it was held for 10s, as long as is allowed (--max-hold)")}),
		"without facts": oneWaits(
			chapter{"3s", exporterIsAway, nothing},
			chapter{"5s", reloads(20 * time.Second), says(reloaded)},
			chapter{"21.9s", nil, nothing},
			chapter{"22s", nil, says("→ unpause other: it was held for 20s, as long as is allowed (--max-hold)")}),
		"longer than it is there": oneWaits(
			chapter{"13s", reloads(10 * time.Second), says(reloaded, "→ unpause other: it was held for 11s, as long as is allowed (--max-hold)")}),
		"for a person": {
			{"0s", begins("trainer"), nothing},
			{"1s", asks("ann", "pause", "trainer"), asked},
			{"1.5s", done, says("pause done trainer: ann asks for it")},
			{"5s", reloads(10 * time.Second), says(reloaded)},
			{"10.9s", nil, nothing},
			{"11s", nil, says(
				"lease closed trainer: it lasted as long as is allowed (--max-hold)",
				"→ unpause trainer: it was held for 10s, as long as is allowed (--max-hold)")}},
		"a longer one changes nothing": {
			{"0s", begins("trainer"), nothing},
			{"1s", asks("ann", "pause", "trainer"), asked},
			{"1.5s", done, says("pause done trainer: ann asks for it")},
			{"5s", reloads(time.Hour), says(reloaded)},
			{"20s", nil, says("→ keep trainer on record until 50s")}},
	} {
		t.Run(name, s.tell)
	}
}
