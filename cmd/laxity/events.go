package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/cmd/internal/event"
	"github.com/laxity/laxity/cmd/internal/view"
	"github.com/laxity/laxity/exporter/task"
)

const eventsHelp = `Print what happened on this node: a task began, was held, ended in time or missed its deadline.

  laxity events                            the tasks that the exporter remembers, and what was decided
  laxity events -f                         and what happens from now on
  laxity events -f web                     of one container
  laxity events -f --json | jq 'select(.kind == "missed")'

A task has at most four events: began, held, resumed (the first time each), and how it ended. The
requests of a server (laxity.release=busy) are counted: every 10 seconds, and those of the past in
one line. Of the past, held and resumed are told as far as the actuator's decisions have them (pauses)
or the task still runs. What the actuator decided is left out where none answers.`

// events prints what happens.
type events struct {
	*cli
	exporter, container string
	acts                standingSource
	asJSON              bool
	gpus                *task.Snapshot // to call the GPUs by their names
}

func (c *cli) addEvents() {
	var (
		e      = events{cli: c}
		follow bool
	)
	e.acts.cli = c
	cmd := c.command("events", eventsHelp, func(ctx context.Context, _ *slog.Logger) error {
		c.endless["events"] = follow
		return e.print(ctx, follow)
	})
	cmd.Flag("follow", "Go on until Ctrl-C.").Short('f').BoolVar(&follow)
	cmd.Flag("json", "Print a line of JSON for each event.").BoolVar(&e.asJSON)
	addExporter(cmd, &e.exporter)
	e.acts.register(cmd, ".")
	cmd.Arg("container", "Name or id. Default: all.").HintAction(containers(&e.exporter)).StringVar(&e.container)
	c.quiet["events"] = true
}

func (e *events) print(ctx context.Context, follow bool) error {
	source, err := e.source(e.exporter)
	if err != nil {
		return err
	}
	s, err := source.Snapshot(ctx)
	if err != nil {
		return err
	}
	e.gpus = s
	if c, ok := s.FindContainer(e.container); ok {
		e.container = c.Name
	}
	standing, err := e.acts.ask(ctx)
	if err != nil {
		return err
	}
	decided, err := e.decided(ctx, standing.Time.IsZero())
	if err != nil {
		return err
	}
	var teller event.Teller
	past := teller.Past(s, decided, time.Now())
	var last uint64
	var at time.Time
	for _, d := range decided {
		last, at = d.Sequence, d.Time
		if x, ok := event.Decided(d); ok {
			past = append(past, x)
		}
	}
	slices.SortStableFunc(past, func(a, b event.Event) int { return a.Time.Compare(b.Time) })
	if err := e.write(past); err != nil {
		return err
	}
	unknown := e.unknown(s, past)
	if !follow {
		return unknown
	}
	if unknown != nil { // it may start yet
		fmt.Fprintf(e.err, "laxity: %v\n", unknown)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	teller.Why = func(id string) string {
		s, _ := e.acts.ask(ctx) // without it the event has no reason
		return whyHeld(&s, id)
	}
	source.Trouble = top{acts: &e.acts}.reportTrouble()
	snapshots, err := source.Watch(ctx)
	if err != nil {
		return err
	}
	decisions := e.watch(ctx, last, at)
	for {
		select {
		case s, ok := <-snapshots:
			if !ok {
				return nil
			}
			e.gpus = s
			err = e.write(teller.See(s, time.Now()))
		case d := <-decisions:
			if x, ok := event.Decided(d); ok {
				err = e.write([]event.Event{x})
			}
		}
		if err != nil {
			return err
		}
	}
}

// unknown returns an error if neither the snapshot nor the past has the container.
func (e *events) unknown(s *task.Snapshot, past []event.Event) error {
	if _, ok := s.FindContainer(e.container); ok || e.container == "" {
		return nil
	}
	if slices.ContainsFunc(past, func(x event.Event) bool { return x.Container == e.container }) {
		return nil
	}
	return fmt.Errorf("no container %q is known; laxity ps --all lists them", e.container)
}

// decided is what the actuator decided; none where it does not answer.
func (e *events) decided(ctx context.Context, silent bool) (all []decision.Decision, err error) {
	if silent {
		return nil, nil
	}
	return all, e.getJSON(ctx, strings.TrimRight(e.acts.url, "/")+"/api/v1/decisions", &all)
}

// watch sends the decisions after one, which was at a time, until ctx ends. It asks again when the stream ends:
// an actuator that was started again counts anew.
func (e *events) watch(ctx context.Context, after uint64, at time.Time) <-chan decision.Decision {
	out := make(chan decision.Decision)
	go func() {
		for ctx.Err() == nil {
			after, at = e.stream(ctx, after, at, out)
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
	}()
	return out
}

// stream sends the decisions after one, which was at a time, until the stream ends. It returns
// number and time of the last one.
func (e *events) stream(ctx context.Context, after uint64, at time.Time, out chan<- decision.Decision) (uint64, time.Time) {
	client, err := e.client()
	if err != nil {
		return after, at
	}
	address := fmt.Sprintf("%s/api/v1/decisions?watch=1&after=%d", strings.TrimRight(e.acts.url, "/"), after)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return after, at
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, at
	}
	defer resp.Body.Close()
	again := after == 0 // what was told before the stream ended comes again; many decisions have one time
	lines := bufio.NewReader(resp.Body)
	for {
		line, err := lines.ReadBytes('\n')
		var d decision.Decision
		if err = errors.Join(err, json.Unmarshal(line, &d)); err != nil {
			return 0, at // the next one may be another actuator's, which counts anew
		}
		if again && !d.Time.After(at) {
			continue
		}
		again = false
		select {
		case out <- d:
			after, at = d.Sequence, d.Time
		case <-ctx.Done():
			return after, at
		}
	}
}

func (e *events) write(all []event.Event) error {
	for _, x := range all {
		if e.container != "" && x.Container != e.container {
			continue
		}
		if e.asJSON {
			if err := json.NewEncoder(e.out).Encode(x); err != nil {
				return err
			}
			continue
		}
		x.Text = view.NameGPUs(x.Text, e.gpus)
		writeEvent(e.out, x)
	}
	return nil
}
