package view

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/page/timeline"
	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/exporter/task"
)

// builder makes one page.
type builder struct {
	f Facts
	// gpus names GPUs in sentences as people do.
	names *strings.Replacer
}

// Build makes the page. It depends on nothing but the facts.
func Build(f Facts) Page {
	b := &builder{f, gpuNames(f.Snapshot)}
	p := Page{Node: f.Service.Node, May: f.May, Changes: f.Changes, Status: b.status(), Placement: b.placement()}
	for _, w := range Windows {
		p.Windows = append(p.Windows, WindowChoice{Text: fmt.Sprintf("%d min", w/time.Minute), Value: fmt.Sprintf("%dm", w/time.Minute), Chosen: w == f.Window})
	}
	if f.Snapshot != nil {
		p.GPUs = b.gpus()
		p.Containers, p.Others = b.containers()
		p.LeftOut = max(0, len(p.Containers)-maxContainers)
		p.Containers = p.Containers[:min(len(p.Containers), maxContainers)]
	}
	p.Decisions, p.Latest = b.decisions()
	return p
}

func (b *builder) status() Status {
	s := b.f.Service
	out := Status{Ready: s.Ready}
	if !s.Ready {
		out.Why = cmp.Or(s.Trouble, s.Standby)
		if out.Why == "" && !s.GuardianUp {
			out.Why = "no guardian watches, or it has only just started"
		}
	}
	chip := func(t Tone, format string, args ...any) {
		out.Chips = append(out.Chips, Chip{fmt.Sprintf(format, args...), t})
	}
	if s.Policy != "" {
		chip(Plain, "policy %s", s.Policy)
		chip(Plain, "share %s", s.Share)
		chip(Plain, "arbitration %s", s.Arbitrate)
	}
	switch {
	case s.DryRun:
		chip(Near, "dry run: nothing is held")
	case s.GuardianUp:
		chip(Plain, "guardian watches")
	default:
		chip(Late, "no guardian watches")
	}
	if s.Breaker != "" {
		chip(Late, "%s", s.Breaker)
	}
	if s.Drained {
		chip(Near, "drained: no new placements here")
	}
	if s.Inbox > 0 {
		chip(Near, "%s", plural(s.Inbox, "alert waits", "alerts wait"))
	}
	return out
}

// gpus are the device's, and at the end what stands for those of which it is not
// known.
func (b *builder) gpus() []GPU {
	w := timeline.NewWindow(b.f.Now, b.f.Window, b.f.Tasks)
	var out []GPU
	for _, d := range b.f.Snapshot.GPUs {
		a := b.f.GPUs[d.UUID]
		g := GPU{
			UUID: d.UUID, Name: strings.TrimSpace(gpuName(d) + " " + d.Name), Use: meter(float64(d.Utilization), false), Tasks: len(b.f.Snapshot.TasksOn(d.UUID)),
			Arbitrated: a.Open, Turn: a.Admitted, Waiting: a.Queue, Order: a.Order,
		}
		g.Memory = Meter{Text: "not known"}
		if d.MemoryTotal > 0 {
			g.Memory = meter(float64(d.MemoryUsed)/float64(d.MemoryTotal), true)
			g.MemoryText = placement.Bytes(d.MemoryUsed) + " of " + placement.Bytes(d.MemoryTotal)
		}
		switch {
		case len(a.Order) > 1:
			g.Arbitration = "arbitrated: all may compute, by slices of time"
		case a.Open:
			g.Arbitration = "arbitrated: the policy decides who computes"
		case g.Tasks > 1:
			g.Arbitration = "shared, not arbitrated: all may compute"
		}
		if a.Unkept != "" {
			g.Arbitration = strings.TrimPrefix(g.Arbitration+"; "+a.Unkept, "; ")
		}
		if a.Relieve {
			g.Arbitration = strings.TrimPrefix(g.Arbitration+"; memory pressure", "; ")
		}
		b.lanes(&g, w)
		out = append(out, g)
	}
	unknown := GPU{UUID: task.UnknownGPU, Name: "GPU not known", Use: Meter{Text: "not known"}, Memory: Meter{Text: "not known"},
		Tasks: len(b.f.Snapshot.TasksOn(task.UnknownGPU))}
	if b.lanes(&unknown, w); !unknown.NothingToShow {
		out = append(out, unknown)
	}
	return out
}

// containers are those that matter to scheduling, the most urgent first; the
// number says how many do not.
func (b *builder) containers() (rows []Container, others int) {
	urgency := map[string]float64{}
	for _, c := range b.f.Snapshot.Containers {
		st := b.f.Standings[c.ID]
		row, float, uses := b.container(c, st)
		if !c.Spec.Managed && len(c.Invalid) == 0 && !uses && !st.Ours {
			others++
			continue
		}
		urgency[c.ID] = float
		rows = append(rows, row)
	}
	slices.SortStableFunc(rows, func(x, y Container) int {
		busy := func(c Container) int { return min(c.Tasks, 1) }
		return cmp.Or(cmp.Compare(busy(y), busy(x)), cmp.Compare(urgency[x.ID], urgency[y.ID]), cmp.Compare(x.Name, y.Name))
	})
	return rows, others
}

// container makes a row, and returns the float of its most urgent task and
// whether it uses or used a GPU.
func (b *builder) container(c task.Container, st Standing) (row Container, float float64, uses bool) {
	row = Container{ID: c.ID, Name: c.Name, Image: c.Image, Why: b.names.Replace(st.Waits), Tone: Plain, Deadline: "none"}
	var urgent, last *task.Task
	for i, t := range b.f.Snapshot.Tasks {
		if t.ContainerID == c.ID && t.State.Unfinished() {
			row.Tasks++
			if urgent == nil || t.Float(b.f.Now) < urgent.Float(b.f.Now) {
				urgent = &b.f.Snapshot.Tasks[i]
			}
		}
	}
	for i, t := range b.f.Snapshot.Ended {
		if t.ContainerID == c.ID {
			last = &b.f.Snapshot.Ended[i]
			break
		}
	}
	if c.Spec.Deadline > 0 {
		row.Deadline, row.DeadlineInput = seconds(float64(c.Spec.Deadline)), typed(c.Spec.Deadline)
	}
	if c.Spec.Share > 0 {
		row.ShareInput = task.ShareWords(c.Spec.Share)
		row.Notes = append(row.Notes, "share "+row.ShareInput)
	}
	float = math.Inf(1)
	switch {
	case urgent != nil:
		float = float64(urgent.Float(b.f.Now))
		b.showFloat(&row, *urgent, float, false)
	case last != nil && last.Outcome() != task.LostOutcome:
		b.showFloat(&row, *last, float64(last.Float(b.f.Now)), true)
	}
	b.showState(&row, c, st, urgent)
	row.CanPause = b.f.May && st.Managed && !c.Spec.NeverPause && !st.Somebody && st.Asked == ""
	row.CanRelease = b.f.May && !st.Somebody && (st.Ours || st.Off || st.Waits != "" || st.Asked != "")
	row.CanChange = b.f.May && b.f.Changes && st.Managed
	return row, float, urgent != nil || last != nil
}

func (b *builder) showFloat(row *Container, t task.Task, float float64, over bool) {
	row.Tone = b.toneOf(t)
	row.FloatWord = spare(row.Tone, over)
	if row.Tone != Plain {
		row.Float = seconds(float)
		row.Due = clock(t.Deadline)
	}
	row.Where = b.names.Replace(strings.Join(t.GPUs, ", "))
}

// gpuNames writes GPU 0 for the UUID of the first GPU of this node, and so on.
func gpuNames(s *task.Snapshot) *strings.Replacer {
	var pairs []string
	if s != nil {
		for _, g := range s.GPUs {
			if g.UUID != "" {
				pairs = append(pairs, g.UUID, gpuName(g))
			}
		}
	}
	return strings.NewReplacer(pairs...)
}

// gpuName is what people call a GPU; a MIG instance has no number of its own.
func gpuName(g task.GPU) string {
	if g.Parent != "" {
		return short(g.UUID)
	}
	return fmt.Sprintf("GPU %d", g.Index)
}

func (b *builder) showState(row *Container, c task.Container, st Standing, urgent *task.Task) {
	row.State, row.StateClass = "idle", "idle"
	if urgent != nil {
		row.State, row.StateClass = string(urgent.State), string(urgent.State)
	}
	switch {
	case st.Somebody:
		row.State, row.StateClass = "paused by somebody else", string(task.Paused)
	case st.Off && row.StateClass == string(task.Running):
		row.State, row.StateClass = string(task.Held), string(task.Held) // the snapshot may be older
	case st.Ours && row.StateClass == string(task.Running), st.Ours && row.StateClass == "idle", st.Ours && c.Paused:
		row.State, row.StateClass = "paused", string(task.Paused)
	}
	if row.Why == "" {
		row.Why = st.Order
	}
	if row.Why == "" && urgent != nil && b.inTurn(c.Name, urgent.GPUs) {
		row.Why = "may compute now"
	}
	if st.Unmet != "" {
		row.Notes = append(row.Notes, "its deadline cannot be promised: "+b.names.Replace(st.Unmet))
	}
	if st.Asked != "" && st.Waits == "" {
		row.Notes = append(row.Notes, "pause requested by "+st.Asked)
	}
	if st.Ours && !st.Until.IsZero() {
		row.Notes = append(row.Notes, "hold ends by "+when(st.Until, b.f.Now))
	}
	switch {
	case !st.Managed:
		row.Notes = append(row.Notes, "observed only")
	case c.Spec.NeverPause:
		row.Notes = append(row.Notes, "never paused")
	case c.Spec.Class == task.ClassBatch:
		row.Notes = append(row.Notes, "batch")
	}
	for _, bad := range c.Invalid {
		row.Notes = append(row.Notes, fmt.Sprintf("label %s=%q cannot be read", bad.Label, bad.Value))
	}
}

// inTurn reports whether the policy lets the container compute on one of them.
func (b *builder) inTurn(name string, gpus []string) bool {
	return slices.ContainsFunc(gpus, func(g string) bool {
		a := b.f.GPUs[g]
		return a.Open && slices.Contains(a.Admitted, name)
	})
}

// Bounds of what is listed.
const (
	maxNodes, maxReasons, maxReservations = 30, 4, 20
	maxDecisions                          = 12
	maxContainers, maxLanes               = 100, 40
)

func (b *builder) placement() Placement {
	r := b.f.Ranking
	p := Placement{Known: r.Known, Error: r.Error, Method: string(r.Method), Summary: r.Nodes.Summary()}
	p.NodesLeftOut = max(0, len(r.Nodes)-maxNodes)
	for i, v := range r.Nodes[:min(len(r.Nodes), maxNodes)] {
		n := Node{Rank: "–", Name: v.Node.Name, Candidate: v.Candidate(), GPU: v.GPU, GPUs: len(v.Node.GPUs),
			MemoryFree: placement.Bytes(v.Node.MemoryFree), Float: seconds(float64(v.Node.Float)), FloatTone: OK}
		var reserved uint64
		for _, g := range v.Node.GPUs {
			reserved += g.Reserved
		}
		if reserved > 0 {
			n.Reserved = placement.Bytes(reserved)
		}
		switch f := float64(v.Node.Float); {
		case math.IsInf(f, 1):
			n.Float, n.FloatTone = "no deadlines", Plain
		case math.IsNaN(f):
			n.FloatTone = Plain
		case f < 0:
			n.FloatTone = Late
		}
		if n.Candidate {
			n.Rank = fmt.Sprint(i + 1)
			n.CandidateAnswer = "a candidate: would get " + gpuOf(v.Node, v.GPU)
			if i == 0 {
				n.CandidateAnswer = "the next container goes here, to " + gpuOf(v.Node, v.GPU)
			}
		}
		n.ReasonsLeftOut = max(0, len(v.Reasons)-maxReasons)
		for _, why := range v.Reasons[:min(len(v.Reasons), maxReasons)] {
			text := why.Text
			if why.GPU != "" && len(v.Node.GPUs) > 1 {
				text += " (" + gpuOf(v.Node, why.GPU) + ")"
			}
			n.Reasons = append(n.Reasons, text)
		}
		p.Nodes = append(p.Nodes, n)
	}
	p.ReservationsLeftOut = max(0, len(r.Reservations)-maxReservations)
	for _, e := range r.Reservations[:min(len(r.Reservations), maxReservations)] {
		row := ReservationRow{ID: e.ID, Where: e.Node + " " + short(e.GPU), State: e.State, Memory: "–", Deadline: "none", Ends: "with its container"}
		if e.Memory > 0 {
			row.Memory = placement.Bytes(e.Memory)
		}
		if e.Deadline > 0 {
			row.Deadline = seconds(float64(e.Deadline))
		}
		if !e.Expires.IsZero() {
			row.Ends = "at " + when(e.Expires, b.f.Now) + " unless it is renewed"
		}
		p.Reservations = append(p.Reservations, row)
	}
	return p
}

// decisions are the last ones, latest first, and the latest in one sentence.
func (b *builder) decisions() (rows []Decision, latest string) {
	all := b.f.Decisions
	for _, d := range slices.Backward(all[max(0, len(all)-maxDecisions):]) {
		row := Decision{Time: when(d.Time, b.f.Now), Stamp: d.Time.Format(time.RFC3339Nano), What: string(d.Kind) + " " + string(d.Result),
			About: cmp.Or(d.Container, d.Alert), Why: b.names.Replace(d.Reason), Error: b.names.Replace(d.Error), By: d.By, Tone: Plain, Symbol: "·"}
		if d.Container != "" && d.Alert != "" {
			row.About = d.Container + ", " + d.Alert
		}
		for _, g := range d.GPUs {
			row.GPUs = append(row.GPUs, b.names.Replace(g))
		}
		switch {
		case d.Result == decision.Failed:
			row.Tone, row.Symbol = Late, "✗"
		case d.Kind == decision.Pause:
			row.Tone, row.Symbol = Near, "‖"
		case d.Kind == decision.Unpause:
			row.Tone, row.Symbol = OK, "▶"
		}
		rows = append(rows, row)
	}
	if len(rows) > 0 {
		latest = strings.TrimSpace(rows[0].What + " " + rows[0].About + ": " + rows[0].Why)
	}
	return rows, latest
}
