package view

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/page/timeline"
	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/exporter/task"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestWords(t *testing.T) {
	for f, want := range map[float64]string{
		0: "0 s", 0.0001: "0 s", 0.25: "250 ms", 0.9994: "999 ms", 0.9996: "1.0 s", 1.04: "1.0 s", -1.25: "−1.2 s", 99.94: "99.9 s", 99.96: "1 min 39 s",
		3599: "59 min 59 s", 3600: "1 h 00 min", -7260: "−2 h 01 min", 172800: "2 days", math.Inf(1): "∞", math.Inf(-1): "−∞", math.NaN(): "unknown",
	} {
		if got := seconds(f); got != want {
			t.Errorf("%v s: %q, want %q", f, got, want)
		}
	}
	for d, want := range map[time.Duration]string{0: "now", -time.Minute: "−1 min", 90 * time.Second: "+1:30", -15 * time.Second: "−15 s"} {
		if got := axis(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
	for x, want := range map[float64]string{0: "0%", 100: "100%", 33.333333: "33.33%", 10.5: "10.5%", 20.004: "20%"} {
		if got := percent(x); got != want {
			t.Errorf("%v: %q, want %q", x, got, want)
		}
	}
	if got := when(t0.Add(-24*time.Hour), t0); got != "28 Feb 12:00:00" {
		t.Errorf("yesterday: %q", got)
	}
}

func TestTone(t *testing.T) {
	for _, c := range []struct {
		float, relative float64
		want            Tone
	}{{math.Inf(1), 0, Plain}, {math.NaN(), 4, Plain}, {3, 4, OK}, {1, 4, OK}, {0.99, 4, Near}, {0, 4, Near}, {-0.01, 4, Late}} {
		if got := tone(c.float, c.relative); got != c.want {
			t.Errorf("float %v of %v: %s, want %s", c.float, c.relative, got, c.want)
		}
	}
}

func running(id, container string, start, deadline float64) task.Task {
	t := task.Task{ID: id, Container: container, ContainerID: container, GPUs: []string{"GPU-a"}, State: task.Running,
		Start: task.Mark{Time: t0.Add(time.Duration(start * 1e9))}}
	if deadline != 0 {
		t.Deadline = t0.Add(time.Duration(deadline * 1e9))
	}
	return t
}

func facts(tasks ...task.Task) Facts {
	s := &task.Snapshot{Time: t0, GPUs: []task.GPU{{UUID: "GPU-a", MemoryTotal: 100, MemoryUsed: 96, Utilization: 1}}, Tasks: tasks}
	h := timeline.New(time.Hour)
	h.Observe(s)
	return Facts{Now: t0, Window: time.Minute, May: true, Snapshot: s, Tasks: h.Since(t0.Add(-time.Hour)), Standings: map[string]Standing{}}
}

func add(f *Facts, name string, spec task.Spec, st Standing) {
	f.Snapshot.Containers = append(f.Snapshot.Containers, task.Container{ID: name, Name: name, Spec: spec})
	f.Standings[name] = st
}

func row(p Page, name string) (r Container) {
	for _, c := range p.Containers {
		if c.Name == name {
			r = c
		}
	}
	return r
}

func TestOrderOnAGPU(t *testing.T) {
	f := facts(running("1", "web", -3, 1), running("2", "first", -3, 9), running("3", "second", -3, 0))
	managed := task.Spec{Managed: true}
	f.GPUs = map[string]Arbitration{"GPU-a": {Open: true, Order: []string{"web", "first", "second"}}}
	add(&f, "web", managed, Standing{Managed: true, Order: "its requests come first, slice 1 s"})
	add(&f, "first", managed, Standing{Managed: true, Order: "its turn beside the requests of web, slice 100 µs"})
	add(&f, "second", managed, Standing{Managed: true, Off: true, Order: "off the GPU for 40 ms: requests of web come first, and it is the turn of first"})
	p := Build(f)
	if g := p.GPUs[0]; g.Arbitration != "arbitrated: all may compute, by slices of time" || strings.Join(g.Order, " ") != "web first second" {
		t.Errorf("%+v", g)
	}
	if r := row(p, "first"); r.State != "running" || r.Why != "its turn beside the requests of web, slice 100 µs" || r.CanRelease {
		t.Errorf("%+v", r)
	}
	if r := row(p, "second"); r.State != "held" || r.StateClass != "held" || !strings.HasPrefix(r.Why, "off the GPU for 40 ms: requests of web") || !r.CanRelease {
		t.Errorf("%+v", r)
	}
}

func TestWhatCannotBeKept(t *testing.T) {
	f := facts(running("1", "train", -3, 1))
	f.GPUs = map[string]Arbitration{"GPU-a": {Open: true, Unkept: "shares add up to 115 %"}}
	add(&f, "train", task.Spec{Managed: true}, Standing{Managed: true, Unmet: "it needs 3s"})
	p := Build(f)
	if g := p.GPUs[0]; g.Arbitration != "arbitrated: the policy decides who computes; shares add up to 115 %" {
		t.Errorf("%+v", g)
	}
	if r := row(p, "train"); !strings.Contains(strings.Join(r.Notes, "; "), "its deadline cannot be promised: it needs 3s") {
		t.Errorf("%+v", r)
	}
}

func TestContainers(t *testing.T) {
	f := facts(running("1", "soon", -3, 1), running("2", "later", -3, 9), running("3", "endless", -3, 0), running("4", "stranger", -1, 0))
	managed := task.Spec{Managed: true, Class: task.ClassDeadline}
	f.Changes = true
	add(&f, "idle", task.Spec{Managed: true, Class: task.ClassDeadline, Share: 0.125}, Standing{Managed: true})
	add(&f, "endless", managed, Standing{Managed: true, Somebody: true})
	add(&f, "later", managed, Standing{Managed: true, Ours: true, Waits: "waits for soon on GPU-a", Until: t0.Add(time.Minute)})
	add(&f, "soon", managed, Standing{Managed: true, Asked: "alice"})
	add(&f, "never", task.Spec{Managed: true, NeverPause: true}, Standing{Managed: true})
	add(&f, "stranger", task.Spec{}, Standing{})
	add(&f, "nobody", task.Spec{}, Standing{})
	add(&f, "mistyped", task.Spec{}, Standing{})
	f.Snapshot.Containers[len(f.Snapshot.Containers)-1].Invalid = []task.InvalidLabel{{Label: "laxity.puase", Value: "never"}}
	p := Build(f)
	var order []string
	for _, c := range p.Containers {
		order = append(order, c.Name)
	}
	if got := strings.Join(order, " "); got != "soon later endless stranger idle mistyped never" || p.Others != 1 {
		t.Errorf("order %s, and %d others", got, p.Others)
	}
	if r := row(p, "later"); r.Why != "waits for soon on GPU 0" || r.State != "paused" || strings.Join(r.Notes, "; ") != "hold ends by 12:01:00" || !r.CanRelease || !r.CanPause {
		t.Errorf("%+v", r)
	}
	if r := row(p, "soon"); r.CanPause || !r.CanRelease || r.Tone != OK || r.Float != "1.0 s" {
		t.Errorf("%+v", r)
	}
	if r := row(p, "endless"); r.State != "paused by somebody else" || r.CanPause || r.CanRelease || r.FloatWord != "no deadline" {
		t.Errorf("%+v", r)
	}
	if r := row(p, "never"); r.CanPause || r.CanRelease {
		t.Errorf("%+v", r)
	}
	if r := row(p, "stranger"); r.CanPause || r.CanChange || r.Notes[0] != "observed only" {
		t.Errorf("%+v", r)
	}
	if r := row(p, "idle"); !r.CanChange || r.ShareInput != "12.5%" || r.Notes[0] != "share 12.5%" {
		t.Errorf("%+v", r)
	}
	f.Changes = false
	if r := row(Build(f), "idle"); r.CanChange {
		t.Error("no exporter changes settings, and there is a field for one")
	}
	f.Changes, f.May = true, false
	for _, c := range Build(f).Containers {
		if c.CanPause || c.CanRelease || c.CanChange {
			t.Errorf("%s: one who may not act can", c.Name)
		}
	}
}

func TestStatus(t *testing.T) {
	for name, c := range map[string]struct {
		service Service
		want    string
	}{
		"ready":       {Service{Ready: true, GuardianUp: true, Policy: "edf", Share: "one", Arbitrate: "auto"}, "true  policy edf|share one|arbitration auto|guardian watches"},
		"no guardian": {Service{}, "false no guardian watches, or it has only just started no guardian watches"},
		"trouble":     {Service{Trouble: "the snapshot is old", GuardianUp: true}, "false the snapshot is old guardian watches"},
		"all":         {Service{Ready: true, DryRun: true, Breaker: "hands off", Drained: true, Inbox: 2}, "true  dry run: nothing is held|hands off|drained: no new placements here|2 alerts wait"},
	} {
		p := Build(Facts{Now: t0, Window: time.Minute, Service: c.service})
		var chips []string
		for _, chip := range p.Status.Chips {
			chips = append(chips, chip.Text)
		}
		if got := fmt.Sprintf("%v %s %s", p.Status.Ready, p.Status.Why, strings.Join(chips, "|")); got != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestGPUs(t *testing.T) {
	lost := running("2", "web", -20, -15)
	f := facts(running("1", "web", -5, 5), lost)
	f.Snapshot.Tasks[1].GPUs = []string{task.UnknownGPU}
	f.Tasks[0].GPUs = []string{task.UnknownGPU}
	p := Build(f)
	if len(p.GPUs) != 2 || p.GPUs[1].Name != "GPU not known" || p.GPUs[0].Use.Full || !p.GPUs[0].Memory.Full {
		t.Fatalf("%+v", p.GPUs)
	}
	bar := p.GPUs[1].Lanes[0].Bars[0]
	if bar.Tone != Late || !bar.Missed || bar.Late == nil || !strings.HasPrefix(bar.Label, "✗ 15.0 s") || !strings.Contains(bar.Title, "float −15.0 s") {
		t.Errorf("%+v", bar)
	}
}

// However much there is, the page stays small.
func TestBounds(t *testing.T) {
	f := facts()
	for i := range 3000 {
		f.Decisions = append(f.Decisions, decision.Decision{Sequence: uint64(i), Time: t0, Reason: strconv.Itoa(i)})
		f.Ranking.Nodes = append(f.Ranking.Nodes, placement.Verdict{Node: placement.Node{Name: strconv.Itoa(i)}, Reasons: make([]placement.Reason, 9)})
		f.Ranking.Reservations = append(f.Ranking.Reservations, placement.Reservation{})
		f.Tasks = append(f.Tasks, timeline.Entry{Task: running(strconv.Itoa(i), "web", -5, 5), Spans: []timeline.Span{{State: task.Running, From: t0.Add(-5 * time.Second)}}})
	}
	for i := range 150 {
		add(&f, fmt.Sprint("c", i), task.Spec{Managed: true}, Standing{Managed: true})
		f.Tasks = append(f.Tasks, timeline.Entry{Task: running(fmt.Sprint("of", i), fmt.Sprint("c", i), -5, 5), Spans: []timeline.Span{{State: task.Running, From: t0.Add(-5 * time.Second)}}})
		if i != 149 {
			f.Tasks[len(f.Tasks)-1].End = &task.Mark{Time: t0.Add(time.Duration(i-149) * time.Millisecond)}
		}
	}
	p := Build(f)
	g := p.GPUs[0]
	// The 38 that ended last, and the two that have unfinished tasks, by name.
	if len(p.Containers) != 100 || p.LeftOut != 50 || len(g.Lanes) != 40 || g.LanesLeftOut != 111 || g.Lanes[0].Name != "c111" || g.Lanes[38].Name != "c149" || g.Lanes[39].Name != "web" {
		t.Errorf("%d containers, %d lanes from %s", len(p.Containers), len(g.Lanes), g.Lanes[0].Name)
	}
	g.Lanes = g.Lanes[39:]
	many := facts()
	for i := range 1000 {
		e := timeline.Entry{Task: running(fmt.Sprint(i), "web", -5, 5), Spans: []timeline.Span{{State: task.Running, From: t0.Add(-5 * time.Second)}}}
		if i > 0 {
			e.End = &task.Mark{Time: t0.Add(time.Duration(i-1000) * time.Millisecond)}
		}
		many.Tasks = append(many.Tasks, e)
	}
	if m := Build(many).GPUs[0]; m.TasksLeftOut != 699 || len(m.Lanes[0].Bars)+m.Lanes[0].Hidden != 301 {
		t.Errorf("%d tasks are left out, %d are drawn or hidden", m.TasksLeftOut, len(m.Lanes[0].Bars)+m.Lanes[0].Hidden)
	}
	if len(p.Decisions) != 12 || p.Decisions[0].Why != "2999" || len(p.Placement.Nodes) != 30 || p.Placement.NodesLeftOut != 2970 || len(p.Placement.Nodes[0].Reasons) != 4 ||
		p.Placement.ReservationsLeftOut != 2980 || len(g.Table) != 50 || g.TableLeftOut != 3100 || len(g.Lanes[0].Bars) != 12 || g.Lanes[0].Hidden != 2988 {
		t.Errorf("%d decisions, %d nodes, %d rows, %d bars", len(p.Decisions), len(p.Placement.Nodes), len(g.Table), len(g.Lanes[0].Bars))
	}
}

// The drawing stays in its lane, whatever the tasks.
func TestBarsAreInTheirLane(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tasks []task.Task
		for i := range rapid.IntRange(1, 30).Draw(t, "tasks") {
			start := rapid.Float64Range(-100, 0).Draw(t, "start")
			tasks = append(tasks, running(strconv.Itoa(i), "web", start, start+rapid.Float64Range(1, 200).Draw(t, "deadline")))
		}
		for _, l := range Build(facts(tasks...)).GPUs[0].Lanes {
			for _, b := range l.Bars {
				if b.Y < 0 || b.Y+b.H > b.Track || b.Track > b.Bottom || b.Bottom > l.Height {
					t.Fatalf("bar %+v in a lane of %d", b, l.Height)
				}
			}
		}
	})
}

// Colours, in light and dark: text is readable (WCAG AA: 4.5), what is drawn can be
// told from its ground (3).
func TestContrast(t *testing.T) {
	raw, err := os.ReadFile("../assets/page.css")
	if err != nil {
		t.Fatal(err)
	}
	schemes := regexp.MustCompile(`--ground:[^}]+`).FindAllString(string(raw), -1)
	if len(schemes) != 2 {
		t.Fatalf("%d colour schemes", len(schemes))
	}
	for i, scheme := range schemes {
		colour := map[string]float64{}
		for _, m := range regexp.MustCompile(`--([a-z]+): #([0-9a-f]{6})`).FindAllStringSubmatch(scheme, -1) {
			colour[m[1]] = luminance(t, m[2])
		}
		least := func(least float64, pairs ...string) {
			for _, pair := range pairs {
				a, b, _ := strings.Cut(pair, " ")
				x, ok := colour[a]
				y, ok2 := colour[b]
				if c := (max(x, y) + 0.05) / (min(x, y) + 0.05); !ok || !ok2 || c < least {
					t.Errorf("scheme %d: %s on %s has contrast %.2f, want %v", i, a, b, c, least)
				}
			}
		}
		least(4.5, "ink card", "ink ground", "quiet card", "quiet ground", "accent card", "accent ground",
			"ok card", "near card", "late card", "ok ground", "near ground", "late ground", "on ok", "on near", "on late", "on plain")
		least(3, "plain card", "quiet ground")
	}
}

// luminance is the relative luminance of WCAG 2.
func luminance(t *testing.T, hex string) float64 {
	t.Helper()
	n, err := strconv.ParseUint(hex, 16, 32)
	if err != nil {
		t.Fatal(err)
	}
	part := func(shift uint) float64 {
		c := float64(n>>shift&255) / 255
		if c <= 0.04045 {
			return c / 12.92
		}
		return math.Pow((c+0.055)/1.055, 2.4)
	}
	return 0.2126*part(16) + 0.7152*part(8) + 0.0722*part(0)
}
