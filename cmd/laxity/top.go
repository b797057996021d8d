package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/laxity/laxity/actuator/source"
	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/cmd/internal/view"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/plain"
)

// standingSource asks an actuator which containers run and which wait.
type standingSource struct {
	*cli
	url string
	// must: a person gave the address, so no answer is an error.
	must bool
}

// ask returns the zero State where nobody answers in time.
func (a *standingSource) ask(ctx context.Context) (state.State, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var s state.State
	err := a.getJSON(ctx, strings.TrimRight(a.url, "/")+"/api/v1/state", &s)
	if err != nil && a.must {
		return state.State{}, err
	}
	return s, nil
}

// follow asks once a second until ctx ends. It skips answers that do not come.
func (a *standingSource) follow(ctx context.Context) <-chan state.State {
	out := make(chan state.State)
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			answer, _ := a.ask(ctx) // it answered once, or no person gave its address
			select {
			case out <- answer:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// top shows rows again and again.
type top struct {
	source      *source.HTTP
	acts        *standingSource
	out         io.Writer
	all, asJSON bool
}

// show follows the snapshots until ctx ends, or shows the first.
func (t top) show(ctx context.Context, once bool) error {
	// A wrong address is an error at once, not silence.
	s, err := t.source.Snapshot(ctx)
	if err != nil {
		return err
	}
	standing, err := t.acts.ask(ctx)
	if err != nil || once {
		return errors.Join(err, t.draw(s, standing, time.Now(), false))
	}
	live := view.Width(t.out) > 0 && !t.asJSON
	if !live { // only what is shown again and again grows old on the screen
		t.source.Trouble = t.reportTrouble()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	snapshots, err := t.source.Watch(ctx)
	if err != nil {
		return err
	}
	standings := t.acts.follow(ctx)
	if live {
		screen := plain.Unwrap(t.out)
		fmt.Fprint(screen, "\x1b[?1049h\x1b[?25l") // the other screen, no cursor
		defer fmt.Fprint(screen, "\x1b[?25h\x1b[?1049l")
	}
	tick := time.NewTicker(500 * time.Millisecond) // float changes between snapshots too
	defer tick.Stop()
	s = nil
	heard := time.Now()
	for {
		select {
		case next, ok := <-snapshots:
			if !ok {
				return nil
			}
			s, heard = next, time.Now()
		case standing = <-standings:
			continue
		case <-tick.C:
			if !live {
				continue
			}
		}
		if err := t.draw(s, standing, heard, live); err != nil {
			return err
		}
	}
}

// reportTrouble returns a function that prints on standard error when the exporter stops
// answering, and when it answers again, once each.
func (t top) reportTrouble() func(error) {
	broken := false
	return func(err error) {
		switch {
		case err != nil && !broken:
			fmt.Fprintln(t.acts.err, "the exporter does not answer; what you see is old:", err)
		case err == nil && broken:
			fmt.Fprintln(t.acts.err, "the exporter answers again")
		}
		broken = err != nil
	}
}

// oldAfter is when a snapshot counts as old. An exporter that answers sends one at least once
// a second.
const oldAfter = 3 * time.Second

// draw shows the latest snapshot, which arrived at heard.
func (t top) draw(s *task.Snapshot, standing state.State, heard time.Time, live bool) error {
	if s == nil {
		return nil
	}
	now := time.Now()
	rows := view.Rows(s, now, t.all)
	view.AddState(rows, standing)
	if t.asJSON {
		return json.NewEncoder(t.out).Encode(rows)
	}
	var b strings.Builder
	if old := now.Sub(heard); live && old > oldAfter {
		fmt.Fprintf(&b, "the exporter does not answer; all of this is %s old\n", old.Round(time.Second))
	}
	if err := view.Summary(&b, s); err != nil {
		return err
	}
	if err := view.Table(&b, rows, view.Width(t.out), view.ColoursOn(t.out)); err != nil {
		return err
	}
	text := plain.Text(b.String())
	if live { // home; clear the rest of each line, then the rest of the screen
		if w, h := view.Size(t.out); w > 0 && h > 0 {
			text = view.Fit(text, w, h)
		}
		text = "\x1b[H" + strings.ReplaceAll(text, "\n", "\x1b[K\r\n") + "\x1b[J"
	}
	_, err := io.WriteString(plain.Unwrap(t.out), text)
	return err
}
