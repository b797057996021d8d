package event

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/laxity/laxity/exporter/task"
)

// countFor is the period over which the requests of a server become one event.
const countFor = 10 * time.Second

// Teller turns snapshots into events. A task has at most four: began, held, resumed and ended,
// however often it is held. Requests of a server are counted. The zero value is ready.
type Teller struct {
	// Why says why a container does not compute; may be nil, or return "".
	Why func(containerID string) string

	tasks   map[string]*told    // of the last snapshot, by id
	servers map[string]*counted // by container id
	ended   time.Time           // of the latest that the last snapshot had
	begun   bool
}

// told is a task as it was last reported.
type told struct {
	task.Task
	held, resumed bool
	since         time.Time // of the first hold
}

// counted are the requests of a server since its last report.
type counted struct {
	name         string
	since        time.Time
	hits, misses int
	others       int  // no deadline, or lost
	more         bool // snapshots came too late to have all of them
	busy         bool
}

// See returns what happened between the previous snapshot and this one, the earliest first. For the
// first snapshot it reports the unfinished tasks, and no ended ones.
func (t *Teller) See(s *task.Snapshot, now time.Time) []Event {
	if t.tasks == nil {
		t.tasks, t.servers = map[string]*told{}, map[string]*counted{}
	}
	t.listServers(s, now)
	var out []Event
	next := make(map[string]*told, len(t.tasks))
	for _, x := range slices.Concat(s.Tasks, s.Ended) {
		before := t.tasks[x.ID]
		if !x.State.Unfinished() && x.End == nil {
			continue // it has not begun
		}
		if before == nil {
			before = &told{}
			if old := x.End != nil && !t.begun; !old && t.servers[x.ContainerID] == nil {
				out = append(out, began(x))
			}
		}
		is := *before
		is.Task = x
		next[x.ID] = &is
		if before.End != nil || x.End != nil && !t.begun {
			continue
		}
		if server := t.servers[x.ContainerID]; server != nil {
			server.add(x)
			continue
		}
		out = append(out, t.changed(&is)...)
	}
	t.missedSome(s)
	t.tasks, t.begun = next, true
	slices.SortStableFunc(out, func(a, b Event) int { return a.Time.Compare(b.Time) })
	return append(out, t.Count(now, countFor)...)
}

// anyOf reports whether the last snapshot had a task of the container.
func (t *Teller) anyOf(id string) bool {
	for _, is := range t.tasks {
		if is.ContainerID == id {
			return true
		}
	}
	return false
}

// changed reports what happened to a task.
func (t *Teller) changed(is *told) []Event {
	e := Event{Time: is.StateSince, Container: is.Container}
	switch is.State {
	case task.Held, task.Paused, task.Swapped:
		if is.held {
			return nil
		}
		is.held, is.since = true, is.StateSince
		e.Kind, e.Text = Held, map[task.State]string{task.Held: "is held", task.Paused: "is paused", task.Swapped: "is swapped out"}[is.State]
		if t.Why != nil {
			if why := t.Why(is.ContainerID); why != "" {
				e.Text += ": " + why
			}
		}
	case task.Running:
		if !is.held || is.resumed {
			return nil
		}
		is.resumed = true
		e.Kind, e.Text = Resumed, "computes again after "+spent(is.StateSince.Sub(is.since))
	case task.Ended, task.Lost:
		return []Event{ended(is.Task)}
	default:
		return nil
	}
	return []Event{e}
}

func began(t task.Task) Event {
	e := Event{Time: t.Start.Time, Kind: Began, Container: t.Container, Text: "began a task without a deadline"}
	if t.HasDeadline() {
		e.Text = "began a task, due in " + spent(t.Deadline.Sub(t.Start.Time))
	}
	return e
}

func ended(t task.Task) Event {
	e := Event{Time: t.End.Time, Container: t.Container}
	took := spent(t.Duration(time.Time{}))
	if waited := t.HeldSeconds + t.PausedSeconds + t.SwappedSeconds; waited >= 0.1 {
		took += fmt.Sprintf(" (%s of it off the GPU)", spent(waited.Duration()))
	}
	switch t.Outcome() {
	case task.Hit:
		e.Kind, e.Text = Hit, fmt.Sprintf("ended in time after %s, with %s to spare", took, spent(t.Float(time.Time{}).Duration()))
	case task.Miss:
		e.Kind, e.Text = Missed, fmt.Sprintf("missed its deadline by %s; it took %s", spent(t.Tardiness()), took)
	case task.LostOutcome:
		e.Kind, e.Text = Lost, "is gone: nobody saw its task end"
	default:
		e.Kind, e.Text = Ended, "ended after "+took
	}
	return e
}

// listServers notes which containers' tasks are requests. It forgets a server that is gone once its
// last requests are reported.
func (t *Teller) listServers(s *task.Snapshot, now time.Time) {
	for id, c := range t.servers {
		if _, runs := s.FindContainer(id); !runs && c.total() == 0 && !t.anyOf(id) {
			delete(t.servers, id)
		}
	}
	for _, c := range s.Containers {
		if c.Spec.Release == task.ReleaseBusy && t.servers[c.ID] == nil {
			t.servers[c.ID] = &counted{name: c.Name, since: now}
		}
	}
}

// missedSome notes that requests may have ended that no snapshot showed: this snapshot has nothing
// of the earlier history.
func (t *Teller) missedSome(s *task.Snapshot) {
	if len(s.Ended) == 0 {
		return
	}
	oldest := s.Ended[len(s.Ended)-1]
	if t.begun && !t.ended.IsZero() && oldest.End.Time.After(t.ended) {
		for _, server := range t.servers {
			server.more = server.more || server.busy
		}
	}
	t.ended = s.Ended[0].End.Time
}

func (c *counted) add(t task.Task) {
	c.busy = true
	switch t.Outcome() {
	case "":
	case task.Hit:
		c.hits++
	case task.Miss:
		c.misses++
	default:
		c.others++
	}
}

func (c *counted) total() int { return c.hits + c.misses + c.others }

// words say how the requests ended, and within which time.
func (c *counted) words(within string) string {
	text := fmt.Sprintf("%d requests ended %s", c.total(), within)
	if c.total() == 1 {
		text = "1 request ended " + within
	}
	if c.more {
		text = "at least " + text
	}
	if c.hits+c.misses > 0 {
		text += fmt.Sprintf(": %d in time, %d missed", c.hits, c.misses)
	}
	return text
}

// Count reports the requests of servers whose last report is at least this old.
func (t *Teller) Count(now time.Time, after time.Duration) []Event {
	var out []Event
	for _, c := range t.servers {
		if now.Sub(c.since) < after {
			continue
		}
		if c.total() > 0 {
			text := c.words("in the last " + now.Sub(c.since).Round(time.Second).String())
			out = append(out, Event{Time: now, Kind: Requests, Container: c.name, Text: text})
		}
		*c = counted{name: c.name, since: now}
	}
	slices.SortFunc(out, func(a, b Event) int { return cmp.Compare(a.Container, b.Container) })
	return out
}

// spent formats a length of time with about three digits: 250ms, 2.4s, 9s, 3m20s.
func spent(d time.Duration) string {
	for _, unit := range []struct{ below, to time.Duration }{
		{time.Millisecond, time.Microsecond}, {time.Second, time.Millisecond}, {10 * time.Second, 10 * time.Millisecond}, {2 * time.Minute, 100 * time.Millisecond},
	} {
		if d.Abs() < unit.below {
			return d.Round(unit.to).String()
		}
	}
	return d.Round(time.Second).String()
}
