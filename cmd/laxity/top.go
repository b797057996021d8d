package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
	tea "github.com/charmbracelet/bubbletea"

	"github.com/laxity/laxity/actuator/source"
	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/cmd/internal/usage"
	"github.com/laxity/laxity/cmd/internal/view"
	screen "github.com/laxity/laxity/cmd/laxity/internal/top"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/plain"
)

// standingSource asks an actuator which containers run and which wait.
type standingSource struct {
	*cli
	url string
	// byUser: the flag is on the command line.
	byUser bool
}

// register adds the flag of the address; means ends its help.
func (a *standingSource) register(cmd *kingpin.CmdClause, means string) {
	usage.Address(cmd.Flag("actuator.url", "Address of the actuator (or of laxity up)"+means).Envar(actuatorEnv).IsSetByUser(&a.byUser), defaultActuator, &a.url)
}

// given reports whether a person named an address, by flag or by its variable: then no answer is an
// error.
func given(byUser bool, env string) bool { return byUser || env != "" && os.Getenv(env) != "" }

// standingPatience bounds how long a command waits for the actuator, without which it shows less.
var standingPatience = time.Second

// ask returns the zero State where nobody answers in time.
func (a *standingSource) ask(ctx context.Context) (state.State, error) {
	ctx, cancel := context.WithTimeout(ctx, standingPatience)
	defer cancel()
	var s state.State
	err := a.getJSON(ctx, strings.TrimRight(a.url, "/")+"/api/v1/state", &s)
	if err != nil && given(a.byUser, actuatorEnv) {
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
	source             *source.HTTP
	acts               *standingSource
	out                io.Writer
	keys               *os.File // nil: standard input
	exporter           string   // its address
	all, asJSON, whole bool
}

// show follows the snapshots until ctx ends or a person has enough, or shows the first.
func (t top) show(ctx context.Context, once bool) error {
	live := view.IsTerminal(t.out) && !t.asJSON && !once
	if !live && !once {
		return t.follow(ctx)
	}
	// A wrong address is an error at once, not silence.
	s, err := t.source.Snapshot(ctx)
	if err != nil {
		return err
	}
	standing, err := t.acts.ask(ctx)
	if err != nil {
		return err
	}
	if once {
		return t.draw(s, standing)
	}
	return t.live(ctx, s, standing)
}

// live is the table with keys, on a terminal.
func (t top) live(ctx context.Context, s *task.Snapshot, standing state.State) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	snapshots, err := t.source.Watch(ctx)
	if err != nil {
		return err
	}
	options := []tea.ProgramOption{tea.WithContext(ctx), tea.WithAltScreen(), tea.WithOutput(plain.Unwrap(t.out)), tea.WithoutSignalHandler()}
	if t.keys != nil {
		options = append(options, tea.WithInput(t.keys))
	}
	p := tea.NewProgram(screen.New(screen.Options{Node: node{t}, All: t.all, Whole: t.whole, Colour: view.ColoursOn(t.out)}), options...)
	standings := t.acts.follow(ctx)
	go func() {
		p.Send(screen.Facts{Snapshot: s, State: &standing})
		for {
			select {
			case next, ok := <-snapshots:
				if !ok {
					p.Quit()
					return
				}
				p.Send(screen.Facts{Snapshot: next})
			case now := <-standings:
				p.Send(screen.Facts{State: &now})
			case <-ctx.Done():
				return
			}
		}
	}()
	if _, err := p.Run(); err != nil && ctx.Err() == nil && !errors.Is(err, tea.ErrProgramKilled) {
		return err
	}
	return nil
}

// node is what the keys of the live table act on.
type node struct{ top }

// Pause implements screen.Node.
func (n node) Pause(ctx context.Context, container string) (string, error) {
	return n.acts.act(ctx, n.acts.url, "pause", container)
}

// Release implements screen.Node.
func (n node) Release(ctx context.Context, container string) (string, error) {
	return n.acts.act(ctx, n.acts.url, "release", container)
}

// Change implements screen.Node.
func (n node) Change(ctx context.Context, container string, change task.Change) (string, error) {
	said, err := n.acts.change(ctx, n.exporter, n.acts, container, change)
	return strings.Join(strings.Fields(said), " "), err
}

// Why implements screen.Node.
func (n node) Why(ctx context.Context, container string) (string, error) {
	e, err := n.acts.cli.ask(ctx, strings.TrimRight(n.acts.url, "/"), container, whyLimit*whyRead)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = e.write(&b, time.Now(), view.Width(n.out), whyLimit, n.whole)
	return b.String(), err
}

// follow prints a table, or a line of JSON, after each change until ctx ends.
func (t top) follow(ctx context.Context) error {
	if _, err := t.source.Snapshot(ctx); err != nil {
		return err
	}
	standing, err := t.acts.ask(ctx)
	if err != nil {
		return err
	}
	t.source.Trouble = t.reportTrouble()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	snapshots, err := t.source.Watch(ctx)
	if err != nil {
		return err
	}
	standings := t.acts.follow(ctx)
	for {
		select {
		case s, ok := <-snapshots:
			if !ok {
				return nil
			}
			if err := t.draw(s, standing); err != nil {
				return err
			}
		case standing = <-standings:
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

// draw prints a snapshot.
func (t top) draw(s *task.Snapshot, standing state.State) error {
	rows := rowsOf(s, standing, t.all, t.whole)
	if t.asJSON {
		return json.NewEncoder(t.out).Encode(rows)
	}
	var b strings.Builder
	if err := view.Summary(&b, s); err != nil {
		return err
	}
	if err := view.WriteUnmet(&b, rows); err != nil {
		return err
	}
	if len(rows) == 0 {
		b.WriteString(nothingYet(s, t.all))
	} else if err := view.Table(&b, rows, view.Width(t.out), view.ColoursOn(t.out)); err != nil {
		return err
	}
	_, err := io.WriteString(t.out, b.String())
	return err
}
