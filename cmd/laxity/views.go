package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/laxity/laxity/actuator/source"
	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/cmd/internal/usage"
	"github.com/laxity/laxity/cmd/internal/view"
	"github.com/laxity/laxity/exporter/task"
)

const psHelp = `List containers with deadline, state, float, GPU and memory, the most urgent first.

  laxity ps
  laxity ps --all                                  also containers without laxity labels
  laxity ps --watch                                again after each change
  laxity ps --json | jq '.[] | select(.float_seconds < 0) | .container'
  laxity ps --exporter.url=http://gpu-2:9870       another machine

FLOAT (laxity) is the time to spare before the deadline: of the most urgent unfinished
task, or of the last one when idle. STATE held: it is kept off the GPU, its host side may run on.
ORDER, where the time of the GPU is divided by slices: 2nd 100ms (second in the queue, time
slice 100 ms), off: web (off the GPU for a moment, web comes first); laxity why has it in
words. MEMORY is the GPU memory it holds, LIMIT what it may hold (laxity.gpu-memory). NOTE: waits
3s (an allocation of GPU memory waits; waits alone: it may not begin to hold any), out 4GiB
(swapped to the host's memory), unguarded (its limit is only watched: laxity why says why), lent
1GiB (more than its share). GANG is the job of which it is one part (laxity.gang). LAST is how the last task fared: hit, miss, none (no deadline) or lost.

What is wrong (GPUs or the container engine do not answer, so that facts are old) is said on
standard error.

ORDER, LIMIT, NOTE and GANG are there when there is something in them; ORDER and NOTE are the
actuator's word, and left out where none answers. A narrow terminal leaves out GANG and SM, then LAST;
--json has everything.`

const topHelp = `Show containers and GPUs, live, and act on them. q ends it.

  laxity top
  sudo laxity top                         who may act, may act here too
  laxity top --once                       one table, and done
  laxity top --json                       one line of JSON for each change

Select a container with the arrows. enter says why it runs or waits, p pauses it, r releases it, d
changes its deadline and % its share, i shows its image, processes, invalid labels and whom it waits for. s sorts,
/ filters, ? lists all keys. The bars beside a GPU are its use in the last half minute. HITS are the
last tasks that ended in time, of those with a deadline.

Where the output is not a terminal, or with --json, a new table or line follows each change.
While the exporter does
not answer the last that it said is shown, and how old it is.`

// rowsOf makes the rows of what exporter and actuator say.
func rowsOf(s *task.Snapshot, standing state.State, all, whole bool) []view.Row {
	rows := view.Rows(s, time.Now(), all)
	view.AddState(rows, standing)
	if whole {
		view.Whole(rows)
	}
	return rows
}

// nothingYet says what to do where there is nothing to show.
func nothingYet(s *task.Snapshot, all bool) string {
	text := "No container here has a laxity.* label or a task on a GPU. Start one like this:\n" +
		"  docker run -d --gpus all --label laxity.deadline=9s IMAGE\n" +
		"  laxity sim run --deadline 9s        on the simulated GPU of laxity up --device=sim\n"
	if n := len(s.Containers); n > 0 && !all {
		text += fmt.Sprintf("laxity ps --all lists the %d without.\n", n)
	}
	return text
}

const noTruncHelp = "Call GPUs by their UUIDs, not 0 and 1."

const defaultExporter = "http://127.0.0.1:9870"

// The variables that name exporter and actuator where no flag does.
const (
	exporterEnv = "LAXITY_EXPORTER_URL"
	actuatorEnv = "LAXITY_ACTUATOR_URL"
)

func addExporter(cmd *kingpin.CmdClause, to *string) {
	usage.Address(cmd.Flag("exporter.url", "Address of the exporter (or of laxity up).").Envar(exporterEnv), defaultExporter, to)
}

// exporterFromEnv is the exporter's address where no flag gives it.
func exporterFromEnv() string { return cmp.Or(os.Getenv(exporterEnv), defaultExporter) }

func (c *cli) addViews() {
	var (
		exporter string
		all      bool
		asJSON   bool
		whole    bool
		watch    bool
		once     bool
		acts     standingSource
	)
	tables := func(cmd *kingpin.CmdClause) {
		addExporter(cmd, &exporter)
		cmd.Flag("all", "Show also containers without laxity labels and GPU tasks.").Short('a').BoolVar(&all)
		cmd.Flag("json", "Print JSON.").BoolVar(&asJSON)
		cmd.Flag("no-trunc", noTruncHelp).BoolVar(&whole)
		acts.register(cmd, ", which knows the order on each GPU and which containers wait for GPU memory. It need not run, unless this flag or "+actuatorEnv+" names it.")
	}
	acts.cli = c
	ps := c.command("ps", psHelp, func(ctx context.Context, _ *slog.Logger) error {
		source, err := c.source(exporter)
		if err != nil {
			return err
		}
		c.endless["ps"] = watch
		if watch {
			return top{source: source, acts: &acts, out: c.out, all: all, asJSON: asJSON, whole: whole}.follow(ctx)
		}
		s, err := source.Snapshot(ctx)
		if err != nil {
			return err
		}
		standing, err := acts.ask(ctx)
		if err != nil {
			return err
		}
		rows := rowsOf(s, standing, all, whole)
		fmt.Fprint(c.err, view.Trouble(s))
		if asJSON {
			return writeJSON(c.out, rows)
		}
		if len(rows) == 0 {
			fmt.Fprint(c.err, nothingYet(s, all))
			return nil
		}
		return errors.Join(view.Table(c.out, rows, view.Width(c.out), view.ColoursOn(c.out)), view.WriteUnmet(c.out, rows))
	})
	tables(ps)
	ps.Flag("watch", "Print the table again after each change, until Ctrl-C.").Short('w').BoolVar(&watch)
	live := c.command("top", topHelp, func(ctx context.Context, _ *slog.Logger) error {
		source, err := c.source(exporter)
		if err != nil {
			return err
		}
		c.endless["top"] = !once
		return top{source: source, acts: &acts, out: c.out, exporter: exporter, all: all, asJSON: asJSON, whole: whole}.show(ctx, once)
	})
	tables(live)
	live.Flag("once", "Show the present state and end.").BoolVar(&once)
	c.quiet["ps"], c.quiet["top"] = true, true
}

// source returns a reader of an exporter's snapshots.
func (c *cli) source(exporter string) (*source.HTTP, error) {
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	return source.NewHTTP(exporter, client)
}
