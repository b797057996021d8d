package event

import (
	"fmt"
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/exporter/task"
)

// Past is See of a first snapshot, with the tasks that have ended, and the pauses among the
// decisions, the oldest first. The requests of each server are one event.
func (t *Teller) Past(s *task.Snapshot, decided []decision.Decision, now time.Time) []Event {
	servers := map[string]*pastRequests{}
	for _, c := range s.Containers {
		if c.Spec.Release == task.ReleaseBusy {
			servers[c.ID] = &pastRequests{counted: counted{name: c.Name}}
		}
	}
	var out []Event
	for _, x := range s.Ended {
		if x.End == nil {
			continue
		}
		if server := servers[x.ContainerID]; server != nil {
			server.add(x)
			continue
		}
		out = append(out, began(x))
		out = append(out, pauses(x, decided, x.End.Time)...)
		out = append(out, ended(x))
	}
	for _, server := range servers {
		if n := server.total(); n > 0 {
			out = append(out, Event{Time: server.last, Kind: Requests, Container: server.name,
				Text: server.words("in " + spent(server.last.Sub(server.first)))})
		}
	}
	out = append(out, t.See(s, now)...)
	for _, x := range s.Tasks {
		if is := t.tasks[x.ID]; is != nil && x.State == task.Running && servers[x.ContainerID] == nil {
			out = append(out, t.resumedBefore(is, decided)...)
		}
	}
	slices.SortStableFunc(out, func(a, b Event) int { return a.Time.Compare(b.Time) })
	return out
}

// resumedBefore tells of a running task that it was held before, so that See does not tell its next hold.
func (t *Teller) resumedBefore(is *told, decided []decision.Decision) []Event {
	waited := is.HeldSeconds + is.PausedSeconds + is.SwappedSeconds
	if waited <= 0 {
		return nil
	}
	is.held, is.resumed = true, true
	out := pauses(is.Task, decided, is.StateSince)
	if len(out) < 2 {
		out = append(out, Event{Time: is.StateSince, Kind: Resumed, Container: is.Container,
			Text: fmt.Sprintf("computes again after %s off the GPU", spent(waited.Duration()))})
	}
	return out
}

// pauses tells a task's first pause before a time, and its end, as far as they are among the decisions.
func pauses(x task.Task, decided []decision.Decision, before time.Time) []Event {
	var out []Event
	for _, d := range decided {
		if d.ContainerID != x.ContainerID || d.Result != decision.Done || d.Time.Before(x.Start.Time) || d.Time.After(before) {
			continue
		}
		switch {
		case d.Kind == decision.Pause && out == nil:
			e := Event{Time: d.Time, Kind: Held, Container: x.Container, Text: "is paused"}
			if d.Reason != "" {
				e.Text += ": " + d.Reason
			}
			out = append(out, e)
		case d.Kind == decision.Unpause && len(out) == 1:
			return append(out, Event{Time: d.Time, Kind: Resumed, Container: x.Container, Text: "computes again after " + spent(d.Time.Sub(out[0].Time))})
		}
	}
	return out
}

// pastRequests are the requests of a server that ended.
type pastRequests struct {
	counted
	first, last time.Time // of their starts and ends
}

func (p *pastRequests) add(t task.Task) {
	p.counted.add(t)
	if p.first.IsZero() || t.Start.Time.Before(p.first) {
		p.first = t.Start.Time
	}
	if t.End.Time.After(p.last) {
		p.last = t.End.Time
	}
}
