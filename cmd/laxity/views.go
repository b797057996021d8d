package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/laxity/laxity/actuator/source"
	"github.com/laxity/laxity/cmd/internal/view"
	"github.com/laxity/laxity/exporter/task"
)

const psHelp = `List containers with deadline, state, float, GPU and memory, the most urgent first.

  laxity ps
  laxity ps --all                                  also containers without laxity labels
  laxity ps --json | jq '.[] | select(.float_seconds < 0) | .container'
  laxity ps --exporter.url=http://gpu-2:9870       another machine

FLOAT (laxity, slack) is the time to spare before the deadline: of the most urgent unfinished
task, or of the last one when idle. STATE held: it is kept off the GPU, its host side may run on.
ORDER, where the time of the GPU is divided by slices: 2nd 100ms (second in the queue, time
slice 100 ms), off: web (off the GPU for a moment, web comes first); laxity why has it in
words. MEMORY is the GPU memory it holds, LIMIT what it may hold (laxity.gpu-memory). NOTE: waits
3s (an allocation of GPU memory waits; waits alone: it may not begin to hold any), out 4GiB
(swapped to the host's memory), unguarded (its limit is only watched: laxity why says why), lent
1GiB (more than its share). LAST is how the last task fared: hit, miss, none (no deadline) or lost.

What is wrong (GPUs or the container engine do not answer, so that facts are old) is said on
standard error.

ORDER, LIMIT and NOTE are there when there is something in them; ORDER and NOTE are the
actuator's word, and left out where none answers. A narrow terminal leaves out SM, then LAST;
--json has everything.`

const topHelp = `Show ps and the GPUs, live. Ctrl-C ends it.

  laxity top
  laxity top --once                       one table, and done
  laxity top --json                       one line of JSON for each change

Where the output is not a terminal, or with --json, a new table or line follows each change.
Of more containers than the terminal has lines the most urgent are shown. While the exporter does
not answer the last that it said is shown, and how old it is.`

const deadlineHelp = `Change the deadline of a running container's GPU tasks.

  laxity deadline web 5s
  laxity deadline web 250ms
  laxity deadline web none                back to the label

The change holds for its unfinished tasks and for all that begin later. It outlives the exporter
and ends with the container.`

const defaultExporter = "http://127.0.0.1:9870"

// exporterFromEnv is the exporter's address where no flag gives it.
func exporterFromEnv() string { return cmp.Or(os.Getenv("LAXITY_EXPORTER_URL"), defaultExporter) }

func (c *cli) addViews() {
	var (
		exporter string
		all      bool
		asJSON   bool
		once     bool
		deadline string
		target   string
		acts     standingSource
	)
	flags := func(cmd *kingpin.CmdClause) {
		cmd.Flag("exporter.url", "Address of the exporter (or of laxity up).").Default(defaultExporter).Envar("LAXITY_EXPORTER_URL").StringVar(&exporter)
	}
	tables := func(cmd *kingpin.CmdClause) {
		flags(cmd)
		cmd.Flag("all", "Show also containers without laxity labels and GPU tasks.").Short('a').BoolVar(&all)
		cmd.Flag("json", "Print JSON.").BoolVar(&asJSON)
		cmd.Flag("actuator.url", "Address of the actuator (or of laxity up), which knows the order on each GPU and which containers wait for GPU memory. It need not run.").
			Default(defaultActuator).Envar("LAXITY_ACTUATOR_URL").IsSetByUser(&acts.must).StringVar(&acts.url)
	}
	acts.cli = c
	tables(c.command("ps", psHelp, func(ctx context.Context, _ *slog.Logger) error {
		source, err := c.source(exporter)
		if err != nil {
			return err
		}
		s, err := source.Snapshot(ctx)
		if err != nil {
			return err
		}
		standing, err := acts.ask(ctx)
		if err != nil {
			return err
		}
		rows := view.Rows(s, time.Now(), all)
		view.AddState(rows, standing)
		fmt.Fprint(c.err, view.Trouble(s))
		if asJSON {
			return writeJSON(c.out, rows)
		}
		return view.Table(c.out, rows, view.Width(c.out), view.ColoursOn(c.out))
	}))
	live := c.command("top", topHelp, func(ctx context.Context, _ *slog.Logger) error {
		source, err := c.source(exporter)
		if err != nil {
			return err
		}
		return top{source, &acts, c.out, all, asJSON}.show(ctx, once)
	})
	tables(live)
	live.Flag("once", "Show the present state and end.").BoolVar(&once)
	set := c.command("deadline", deadlineHelp,
		func(ctx context.Context, _ *slog.Logger) error { return c.setDeadline(ctx, exporter, target, deadline) })
	flags(set)
	set.Arg("container", "Name or id.").Required().HintAction(containers(&exporter)).StringVar(&target)
	set.Arg("deadline", "9s, 250ms, a number of seconds, or none.").Required().HintOptions("none").StringVar(&deadline)
	c.quiet["ps"], c.quiet["top"], c.quiet["deadline"] = true, true, true
}

// source returns a reader of an exporter's snapshots.
func (c *cli) source(exporter string) (*source.HTTP, error) {
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	return source.NewHTTP(exporter, client)
}

func (c *cli) setDeadline(ctx context.Context, base, container, deadline string) error {
	body := []byte(`{"deadline":null}`)
	if deadline != "none" {
		if _, err := task.ParseDeadline(deadline); err != nil {
			return err
		}
		body, _ = json.Marshal(map[string]string{"deadline": deadline})
	}
	address := strings.TrimRight(base, "/") + "/api/v1/containers/" + url.PathEscape(container) + "/deadline"
	client, err := c.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, address, strings.NewReader(string(body)))
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("the exporter does not answer (is laxity up running?): %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	var refused struct{ Error, Hint string }
	if err := json.NewDecoder(resp.Body).Decode(&refused); err != nil || refused.Error == "" {
		return denied(resp.StatusCode, fmt.Errorf("the exporter answers %s", resp.Status))
	}
	return denied(resp.StatusCode, fmt.Errorf("%s: %s", refused.Error, refused.Hint))
}
