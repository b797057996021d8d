package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/record"
	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/cmd/internal/usage"
	"github.com/laxity/laxity/cmd/internal/view"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/plain"
	"github.com/laxity/laxity/internal/unreachable"
)

const whyHelp = `Say why a container runs or waits now, and what was decided about it, latest last.

  laxity why trainer-b
  laxity why --limit=100 trainer-b
  laxity why --json trainer-b | jq .now

Exit code 1: the actuator knows no such container, or does not answer.`

// explanation is what `laxity why --json` prints.
type explanation struct {
	Container string              `json:"container"`
	Now       string              `json:"now"`
	State     *state.Container    `json:"state,omitempty"`
	Hold      *record.Hold        `json:"hold,omitempty"`
	Notes     []string            `json:"notes,omitempty"`
	Decisions []decision.Decision `json:"decisions"`
	gpus      []state.GPU
}

const (
	// whyLimit is how many lines of decisions are shown unless a person asks for more.
	whyLimit = 20
	// whyRead is how many decisions are read for each line: what repeats is one line.
	whyRead = 50
)

func (c *cli) addWhy() {
	var (
		address, container string
		limit              int
		asJSON, whole      bool
	)
	cmd := c.command("why", whyHelp, func(ctx context.Context, _ *slog.Logger) error {
		limit = max(1, limit)
		e, err := c.ask(ctx, strings.TrimRight(address, "/"), container, limit*whyRead)
		if err != nil {
			return err
		}
		if asJSON {
			e.Decisions = e.Decisions[max(0, len(e.Decisions)-limit):]
			return writeJSON(c.out, e)
		}
		return e.write(c.out, time.Now(), view.Width(c.out), limit, whole)
	})
	usage.Address(cmd.Flag("actuator.url", "Address of the actuator (or of laxity up's).").Envar(actuatorEnv), defaultActuator, &address)
	cmd.Flag("limit", "Most lines of decisions to show; with --json, most decisions.").Default(strconv.Itoa(whyLimit)).IntVar(&limit)
	cmd.Flag("json", "Print JSON.").BoolVar(&asJSON)
	cmd.Flag("no-trunc", noTruncHelp).BoolVar(&whole)
	cmd.Arg("container", "Name or id.").Required().HintAction(containers(new(string))).StringVar(&container)
	c.quiet["why"] = true
}

// ask collects what the actuator knows of the container.
func (c *cli) ask(ctx context.Context, base, container string, limit int) (explanation, error) {
	var s state.State
	e := explanation{Container: container, Decisions: []decision.Decision{}}
	if err := c.getJSON(ctx, base+"/api/v1/state", &s); err != nil {
		return e, err
	}
	q := url.Values{"container": {container}, "limit": {fmt.Sprint(limit)}}
	if err := c.getJSON(ctx, base+"/api/v1/decisions?"+q.Encode(), &e.Decisions); err != nil {
		return e, err
	}
	if i := slices.IndexFunc(s.Containers, func(c state.Container) bool { return named(c.Name, c.ID, container) }); i >= 0 {
		e.State, e.Container = &s.Containers[i], s.Containers[i].Name
	}
	if i := slices.IndexFunc(s.Holds, func(h record.Hold) bool { return named(h.Container, h.ContainerID, container) }); i >= 0 {
		e.Hold = &s.Holds[i]
	}
	if e.State == nil && e.Hold == nil && len(e.Decisions) == 0 {
		return e, fmt.Errorf("the actuator at %s knows no container %q, and decided nothing about one; `laxity ps --all` lists them", base, container)
	}
	e.Now, e.Notes, e.gpus = e.now(s.GPUs), notes(s, e), s.GPUs
	return e, nil
}

func named(name, id, ref string) bool {
	return name == ref || id == ref || len(ref) >= 12 && strings.HasPrefix(id, ref)
}

// now says in one line whether the container runs or waits.
func (e explanation) now(gpus []state.GPU) string {
	switch s := e.State; {
	case s == nil:
		return "does not run"
	case s.Standing == "somebody":
		return "paused, but not by Laxity: a person has to unpause it"
	case strings.HasPrefix(s.Waits, "waits "): // for whom
		return s.Waits
	case s.Waits != "":
		return "waits: " + s.Waits
	case e.Hold != nil:
		return "held: " + e.Hold.Reason
	case !s.Managed:
		return "runs; it is only observed (none of Laxity's labels, or not on the allow-list)"
	case s.NeverPause:
		return "runs; it is labelled laxity.pause=never"
	case s.Off:
		return "is held: " + s.Order
	case s.Order != "":
		return "runs: " + s.Order
	case s.Tasks == 0:
		return "runs; it has no GPU task"
	}
	if e.State.Beside != "" {
		return "runs beside those whose turn it is: " + e.State.Beside
	}
	var turn []string
	for _, g := range gpus {
		if slices.Contains(g.Admitted, e.Container) {
			turn = append(turn, g.UUID)
		}
	}
	if len(turn) > 0 {
		return "runs: it is in turn on " + strings.Join(turn, ", ")
	}
	return "runs: nobody contends for its GPU, or it is in a host phase"
}

// notes are further facts that matter for the container.
func notes(s state.State, e explanation) []string {
	var out []string
	for _, why := range []string{s.Trouble, s.Breaker, s.Standby} {
		if why != "" {
			out = append(out, "nothing new is held: "+why)
		}
	}
	for _, x := range s.Exemptions {
		if e.State != nil && x.ContainerID == e.State.ID {
			out = append(out, "it is not held for its present tasks: "+x.Reason)
		}
	}
	if e.State != nil && e.State.DeadlineUnmet != "" {
		out = append(out, "its deadline cannot be promised, by its history and by what was there when it started: "+e.State.DeadlineUnmet)
	}
	if e.State != nil && e.State.DeadlineUnknown {
		out = append(out, "whether its deadline can be met is not known: too little of its image and command has ended here")
	}
	if e.State != nil && e.State.MemoryAsked != "" {
		out = append(out, "its allocations of GPU memory may wait or be refused: "+e.State.MemoryAsked)
	}
	if others := gangOf(s, e.State); len(others) > 0 {
		out = append(out, fmt.Sprintf("it is of the gang %s, with %s (laxity.gang)", e.State.Gang, strings.Join(others, ", ")))
	}
	for _, g := range s.GPUs {
		if len(g.Order) > 1 && slices.Contains(g.Order, e.Container) {
			out = append(out, fmt.Sprintf("queue of %s, the first one first: %s", g.UUID, strings.Join(g.Order, ", ")))
		}
	}
	if why := s.NoChannels; why != "" && contended(s, e) {
		out = append(out, "containers that wait are paused, a running kernel is not stopped, and GPU time is not divided by share, because channels cannot be controlled here: "+why)
	}
	for _, g := range s.GPUs {
		if i := slices.Index(g.Queue, e.Container); i >= 0 {
			out = append(out, fmt.Sprintf("number %d of %d in the queue for %s, where %s may compute", i+1, len(g.Queue), g.UUID, cmp.Or(strings.Join(g.Admitted, ", "), "nobody")))
		}
	}
	for _, g := range s.GPUs {
		if g.Unkept != "" && e.State != nil && e.State.Managed {
			out = append(out, "on "+g.UUID+": "+g.Unkept)
		}
	}
	return out
}

// gangOf names the other containers of the container's gang.
func gangOf(s state.State, c *state.Container) (names []string) {
	id := func(c state.Container) string {
		return task.Container{Name: c.Name, Spec: task.Spec{Gang: c.Gang}}.GangID()
	}
	if c == nil || c.Gang == "" {
		return nil
	}
	for _, other := range s.Containers {
		if other.ID != c.ID && id(other) == id(*c) {
			names = append(names, other.Name)
		}
	}
	return names
}

// contended reports whether the container waits, or others wait for it.
func contended(s state.State, e explanation) bool {
	return e.State != nil && e.State.Waits != "" || slices.ContainsFunc(s.GPUs, func(g state.GPU) bool {
		return len(g.Queue) > 0 && slices.Contains(slices.Concat(g.Admitted, g.Queue), e.Container)
	})
}

// write writes it for a person, with at most so many lines of decisions; whole writes the UUIDs
// of GPUs.
func (e explanation) write(w io.Writer, now time.Time, columns, limit int, whole bool) error {
	named := func(text string) string {
		if whole {
			return text
		}
		return view.NameStateGPUs(text, e.gpus)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\n", plain.Line(e.Container), plain.Line(named(e.Now)))
	if e.Hold != nil {
		fmt.Fprintf(&b, "  held for %v, %v at most\n", now.Sub(e.Hold.Since).Round(time.Millisecond), e.Hold.Until.Sub(e.Hold.Since))
	}
	for _, n := range e.Notes {
		fmt.Fprintf(&b, "  %s\n", plain.Line(named(n)))
	}
	if len(e.Decisions) > 0 {
		lines := decisionLines(e.Decisions, named)
		lines = lines[max(0, len(lines)-limit):]
		b.WriteString("\n")
		if err := view.Columns(&b, slices.Insert(lines, 0, []string{"TIME", "DECISION", "RESULT", "WHY"}), columns, 3); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// decisionLines has a line for each decision, with its time. The same one several times in a row, as
// about a server's requests, is one line, with the time of the last.
func decisionLines(all []decision.Decision, named func(string) string) (lines [][]string) {
	const clock = "15:04:05"
	for i := 0; i < len(all); {
		first, why := all[i], decisionWhy(all[i])
		n := 1
		for i+n < len(all) && all[i+n].Kind == first.Kind && all[i+n].Result == first.Result && decisionWhy(all[i+n]) == why {
			n++
		}
		i += n
		text := named(why)
		if n > 1 {
			text += fmt.Sprintf(" (%d times since %s)", n, first.Time.Local().Format(clock))
		}
		lines = append(lines, []string{all[i-1].Time.Local().Format(clock + ".000"), string(first.Kind), string(first.Result), text})
	}
	return lines
}

func decisionWhy(d decision.Decision) string {
	who := d.Alert
	if d.By != "" {
		who = d.By + ":"
	}
	return strings.TrimSpace(who + " " + d.Reason + " " + d.Error)
}

// getJSON gets an answer of the actuator.
func (c *cli) getJSON(ctx context.Context, address string, v any) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return unreachable.At("actuator", req.URL, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return denied(resp.StatusCode, fmt.Errorf("the actuator answers %s to %s", resp.Status, address))
	}
	return json.NewDecoder(resp.Body).Decode(v)
}
