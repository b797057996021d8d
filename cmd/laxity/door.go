package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/version"

	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/cmd/internal/event"
	"github.com/laxity/laxity/cmd/internal/view"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/plain"
)

// door is what laxity up says on a terminal: what it found, one line for each event, and at
// the end what it released.
type door struct {
	upRun
	teller event.Teller
	// held are the containers that were held or divided by slices when the end began; released
	// those that were unpaused since.
	held, released []string
	ending         bool
}

func newDoor(u upRun) *door {
	d := &door{upRun: u}
	d.teller.Why = func(id string) string { return whyHeld(u.stack.Actuator.State(), id) }
	return d
}

// whyHeld says why the actuator keeps a container from computing; "" where it does not say.
func whyHeld(s *state.State, id string) string {
	for _, h := range s.Holds {
		if h.ContainerID == id {
			return h.Reason
		}
	}
	for _, c := range s.Containers {
		if c.ID == id {
			return cmp.Or(c.Waits, c.Swapped, c.Order)
		}
	}
	return ""
}

// bannerPatience is how long the banner waits for the first facts.
const bannerPatience = 3 * time.Second

// tell prints until ctx ends. ending tells that the end began.
func (d *door) tell(ctx context.Context, ending <-chan struct{}) {
	d.awaitFacts(ctx)
	io.WriteString(d.out, d.banner(d.stack.Exporter.Snapshot(), d.stack.Actuator.State())) //nolint:errcheck // a terminal that is gone is no reason to end
	snapshots := d.stack.Exporter.Watch(ctx)
	decisions := d.stack.Actuator.Decisions().Watch(ctx, 0)
	count := time.NewTicker(time.Second) // servers are told also while no snapshot comes
	defer count.Stop()
	var last uint64
	for {
		select {
		case s, ok := <-snapshots:
			if !ok {
				snapshots = nil
				continue
			}
			d.print(d.teller.See(s, time.Now()))
		case x, ok := <-decisions:
			if !ok {
				decisions = nil
				continue
			}
			last = x.Sequence
			d.decided(x)
		case now := <-count.C:
			d.print(d.teller.Count(now, 10*time.Second))
		case <-ending:
			ending, d.ending = nil, true
			fmt.Fprintln(d.out) // behind ^C
			line(d.out, "%s  ending: releasing what is held", clock(time.Now()))
		case <-ctx.Done(): // all parts have ended: what they said last
			d.print(d.teller.See(d.stack.Exporter.Snapshot(), time.Now()))
			rest, _ := d.stack.Actuator.Decisions().Last(last)
			for _, x := range rest {
				d.decided(x)
			}
			return
		}
	}
}

func (d *door) decided(x decision.Decision) {
	if d.ending && x.Kind == decision.Unpause && x.Result == decision.Done {
		d.released = append(d.released, x.Container) // one whose pause was under way is not among held
	}
	if e, ok := event.Decided(x); ok {
		d.print([]event.Event{e})
	}
}

func (d *door) print(events []event.Event) {
	s := d.stack.Exporter.Snapshot()
	for _, e := range events {
		e.Text = view.NameGPUs(e.Text, s)
		writeEvent(d.out, e)
	}
}

// awaitFacts waits until the GPUs were read and the actuator knows whether it can act, or
// until a person would wonder.
func (d *door) awaitFacts(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, bannerPatience)
	defer cancel()
	select {
	case <-d.stack.Exporter.Ready():
	case <-ctx.Done():
		return
	}
	snapshots, decisions := d.stack.Exporter.Watch(ctx), d.stack.Actuator.Decisions().Watch(ctx, 0)
	for {
		select {
		case _, ok := <-snapshots: // the actuator follows each
			if s := d.stack.Actuator.State(); !ok || s.Ready || s.Trouble != "" || s.Standby != "" {
				return
			}
		case x, ok := <-decisions:
			if !ok || x.Kind == decision.Service && x.Result == decision.Waiting {
				return // no facts come before what it waits for
			}
		}
	}
}

// banner says what was found, and what to do next.
func (d *door) banner(s *task.Snapshot, is *state.State) string {
	paint := view.ColoursOn(d.out)
	var b strings.Builder
	node := is.Node
	if s.Node != "" {
		node = s.Node
	}
	fmt.Fprintf(&b, "%s on %s\n\n", paint.Paint(view.Bold, strings.TrimSpace("Laxity "+version.Version)), plain.Line(node))
	painted := func(style view.Style, name, text string) {
		fmt.Fprintf(&b, "  %s  %s\n", paint.Paint(view.Cyan, fmt.Sprintf("%-6s", name)), paint.Paint(style, plain.Line(text)))
	}
	row := func(name, format string, args ...any) { painted(view.Plain, name, fmt.Sprintf(format, args...)) }
	more := func(text string) { row("", "%s", text) }
	for _, g := range s.GPUs {
		row("GPU "+view.GPUName(s, g.UUID), "%s, %s", g.Name, view.Bytes(g.MemoryTotal))
	}
	if len(s.GPUs) == 0 {
		row("GPU", "none answers: %s", cmp.Or(s.Health.DeviceError, "not read yet"))
	}
	row("Page", "%s", d.page)
	if d.token != "" {
		more("sign in with any name; the password is the token in " + d.token)
	}
	if d.stack.Socket != "" {
		row("Label", "the GPU is simulated; start a container on it like this:")
		more("laxity sim run --deadline 9s" + d.simFlag())
	} else {
		row("Label", "a container like this:")
		more("docker run -d --gpus all --label laxity.deadline=9s IMAGE")
	}
	row("Order", "%s, %s", is.Policy, whenArbitrated(is))
	row("Hold", "%s", d.howHeld(is))
	row("Memory", "%s", howGuarded(is))
	if is.GuardianUp {
		row("Undo", "Ctrl-C releases everything; a guardian does if this process dies")
	} else {
		row("Undo", "Ctrl-C releases everything")
	}
	for _, trouble := range []string{is.Trouble, is.Standby, is.Breaker} {
		if trouble != "" {
			painted(view.Red, "But", "nothing is held: "+trouble)
		}
	}
	if !s.Health.EngineUp {
		painted(view.Red, "But", "the container engine does not answer: "+s.Health.EngineError)
	}
	b.WriteString("\n")
	return b.String()
}

// simFlag is what laxity sim run needs to find a simulated GPU in an unusual place.
func (d *door) simFlag() string {
	if d.stack.Socket == defaultSimSocket() {
		return ""
	}
	return " --socket " + d.stack.Socket
}

func whenArbitrated(is *state.State) string {
	switch is.Arbitrate {
	case config.Always:
		return "always"
	case config.Never:
		return "never: containers are only watched"
	default:
		return "while containers contend for a GPU"
	}
}

// howHeld says how those that wait are kept from computing.
func (d *door) howHeld(is *state.State) string {
	switch {
	case d.dryRun:
		return "nobody: --dry-run decides, and changes nothing"
	case is.Hold == config.HoldChannels:
		return "GPU time is divided by slices; who waits is off the GPU, and its host side runs on"
	case is.NoChannels != "":
		return "containers that wait are paused, because channels cannot be controlled here: " + is.NoChannels
	default:
		return "containers that wait are paused"
	}
}

func howGuarded(is *state.State) string {
	var swap string
	if is.Swap {
		swap = "; containers are swapped out where room is needed"
	}
	switch is.MemoryGuard {
	case "":
		return "limits (laxity.gpu-memory) are kept at each allocation" + swap
	case string(config.MemoryOff):
		return "limits (laxity.gpu-memory) are watched, not kept (--memory-guard=off)" + swap
	default:
		return "limits (laxity.gpu-memory) are watched, not kept: " + is.MemoryGuard + swap
	}
}

// heldNow names the containers that something is done to.
func heldNow(s *state.State) []string {
	var names []string
	for _, h := range s.Holds {
		names = append(names, h.Container)
	}
	for _, c := range s.Containers {
		if c.Off || c.SliceSeconds > 0 || c.Swapped != "" {
			names = append(names, c.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// goodbye says what became of what was held.
func (d *door) goodbye(err error) {
	released := slices.Compact(slices.Sorted(slices.Values(slices.Concat(d.held, d.released))))
	switch {
	case err != nil: // the error follows
	case d.dryRun:
		line(d.out, "Goodbye: nothing was held, this was a dry run.")
	case len(released) == 0:
		line(d.out, "Goodbye: nothing was held.")
	default:
		line(d.out, "Goodbye: released %s (%s).", view.Count(len(released), "container"), strings.Join(released, ", "))
	}
}

func clock(t time.Time) string { return t.Local().Format(time.TimeOnly) }

// eventStyles paint the events that a person looks for.
var eventStyles = map[event.Kind]view.Style{
	event.Hit: view.Green, event.Missed: view.Red, event.Lost: view.Red, event.Trouble: view.Red,
	event.Held: view.Yellow, event.Memory: view.Yellow, event.Service: view.Cyan, event.Asked: view.Cyan,
}

// writeEvent writes an event on a line of its own.
func writeEvent(w io.Writer, e event.Event) {
	paint := view.ColoursOn(w)
	fmt.Fprintf(w, "%s  %-14s  %s\n", paint.Paint(view.Dim, clock(e.Time)), plain.Line(cmp.Or(e.Container, "laxity")), paint.Paint(eventStyles[e.Kind], plain.Line(e.Text)))
}
