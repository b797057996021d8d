package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"golang.org/x/term"

	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/cmd/laxity/internal/view"
	"github.com/laxity/laxity/exporter/task"
)

const psHelp = `List containers with deadline, state, float, GPU and memory, the most urgent first.

  laxity ps
  laxity ps --all                                  also containers without laxity labels
  laxity ps --json | jq '.[] | select(.float_seconds < 0) | .container'
  laxity ps --exporter.url=http://gpu-2:9870       another machine

FLOAT (laxity, slack) is the time to spare before the deadline: of the most urgent unfinished
task, or of the last one when idle. LAST is how the last task fared: hit, miss, none (no
deadline) or lost.`

const topHelp = `Show ps and the GPUs, live. Ctrl-C ends it.

  laxity top
  laxity top --once                       one table, and done
  laxity top --json                       one line of JSON for each change

Where the output is not a terminal, or with --json, a new table or line follows each change.`

const deadlineHelp = `Change the deadline of a running container's GPU tasks.

  laxity deadline web 5s
  laxity deadline web 250ms
  laxity deadline web none                back to the label

The change holds for its unfinished tasks and for all that begin later. It outlives the exporter
and ends with the container.`

const defaultExporter = "http://127.0.0.1:9870"

// exporterFromEnv is where the exporter is if no flag says it.
func exporterFromEnv() string { return cmp.Or(os.Getenv("LAXITY_EXPORTER_URL"), defaultExporter) }

func (c *cli) addViews() {
	var (
		exporter string
		all      bool
		asJSON   bool
		once     bool
		deadline string
		target   string
	)
	flags := func(cmd *kingpin.CmdClause) {
		cmd.Flag("exporter.url", "Address of the exporter (or of laxity up).").Default(defaultExporter).Envar("LAXITY_EXPORTER_URL").StringVar(&exporter)
	}
	tables := func(cmd *kingpin.CmdClause) {
		flags(cmd)
		cmd.Flag("all", "Also containers without laxity labels and GPU tasks.").Short('a').BoolVar(&all)
		cmd.Flag("json", "Print JSON.").BoolVar(&asJSON)
	}
	tables(c.command("ps", psHelp, func(ctx context.Context, _ *slog.Logger) error {
		source, err := c.source(exporter)
		if err != nil {
			return err
		}
		s, err := source.Snapshot(ctx)
		if err != nil {
			return err
		}
		rows := view.Rows(s, time.Now(), all)
		if asJSON {
			return writeJSON(c.out, rows)
		}
		return view.Table(c.out, rows, width(c.out), colours(c.out))
	}))
	live := c.command("top", topHelp, func(ctx context.Context, _ *slog.Logger) error {
		source, err := c.source(exporter)
		if err != nil {
			return err
		}
		return top(ctx, source, c.out, all, asJSON, once)
	})
	tables(live)
	live.Flag("once", "Show the present and end.").BoolVar(&once)
	set := c.command("deadline", deadlineHelp,
		func(ctx context.Context, _ *slog.Logger) error { return c.setDeadline(ctx, exporter, target, deadline) })
	flags(set)
	set.Arg("container", "Name or id.").Required().HintAction(containers(&exporter)).StringVar(&target)
	set.Arg("deadline", "9s, 250ms, a number of seconds, or none.").Required().HintOptions("none").StringVar(&deadline)
	c.quiet["ps"], c.quiet["top"], c.quiet["deadline"] = true, true, true
}

// colours says whether to paint what goes to out.
func colours(out io.Writer) view.Palette {
	f, ok := out.(*os.File)
	return view.Colours(ok && term.IsTerminal(int(f.Fd())))
}

// source reads snapshots of an exporter.
func (c *cli) source(exporter string) (*state.HTTP, error) {
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	return state.NewHTTP(exporter, client)
}

// width is that of the terminal; 0, no limit, elsewhere.
func width(out io.Writer) int {
	if f, ok := out.(*os.File); ok {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil {
			return w
		}
	}
	return 0
}

// top follows the snapshots until ctx ends.
func top(ctx context.Context, source *state.HTTP, out io.Writer, all, asJSON, once bool) error {
	// A wrong address is an error now, not silence.
	first, err := source.Snapshot(ctx)
	if err != nil || once {
		return errors.Join(err, draw(out, first, all, asJSON, false))
	}
	snapshots, err := source.Watch(ctx)
	if err != nil {
		return err
	}
	columns := width(out)
	live := columns > 0 && !asJSON
	if live {
		fmt.Fprint(out, "\x1b[?1049h\x1b[?25l") // the other screen, no cursor
		defer fmt.Fprint(out, "\x1b[?25h\x1b[?1049l")
	}
	tick := time.NewTicker(500 * time.Millisecond) // float falls between changes too
	defer tick.Stop()
	var s *task.Snapshot
	for {
		select {
		case next, ok := <-snapshots:
			if !ok {
				return nil
			}
			s = next
		case <-tick.C:
			if !live || s == nil {
				continue
			}
		}
		if err := draw(out, s, all, asJSON, live); err != nil {
			return err
		}
	}
}

func draw(out io.Writer, s *task.Snapshot, all, asJSON, live bool) error {
	if s == nil {
		return nil
	}
	now := time.Now()
	rows := view.Rows(s, now, all)
	if asJSON {
		return json.NewEncoder(out).Encode(rows)
	}
	var b strings.Builder
	columns := 0
	if live {
		columns = width(out)
	}
	if err := view.Summary(&b, s, now); err != nil {
		return err
	}
	if err := view.Table(&b, rows, columns, colours(out)); err != nil {
		return err
	}
	text := b.String()
	if live { // home; clear the rest of each line, then the rest of the screen
		text = "\x1b[H" + strings.ReplaceAll(text, "\n", "\x1b[K\r\n") + "\x1b[J"
	}
	_, err := io.WriteString(out, text)
	return err
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
	return fmt.Errorf("%s: %s", refused.Error, refused.Hint)
}
