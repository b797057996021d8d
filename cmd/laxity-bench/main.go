// Command laxity-bench runs the experiments behind every figure that Laxity claims,
// and writes the page of measurements. It is not part of what is installed.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/common/promslog/flag"

	"github.com/laxity/laxity/cmd/internal/usage"
)

// Exit codes, as documented in --help.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitInterrupted = 130 // 128 + SIGINT, as shells have it
)

const help = `Measure Laxity beside its alternatives, in one run, and print a table.

  laxity-bench list
  laxity-bench events                     progress on standard error, the table on standard output
  laxity-bench events --quick --out=      the smallest run; nothing is stored
  laxity-bench arbitrate --set ways=default,laxity
  laxity-bench report

Every figure that Laxity claims comes from one of these experiments. A result is stored as
--out/NAME.json, its raw rows beside it as NAME.csv.gz; those of a run that was stopped or
failed as NAME.partial. Without an NVIDIA GPU the simulated one is used: its figures show that
the experiment works, not how fast anything is.

Exit codes: 0 done, 1 failed (the last line on standard error says why), 2 wrong usage, 130
stopped by Ctrl-C before it was done; what was measured until then is stored.`

// cli is what every command shares.
type cli struct {
	app      *kingpin.Application
	out, err io.Writer
	log      promslog.Config
	runs     map[string]func(ctx context.Context, log *slog.Logger) error
}

func main() { os.Exit(realMain(os.Args[1:], os.Stdout, os.Stderr)) }

// realMain is main without the process: it parses, runs one command, and returns the
// exit code.
func realMain(args []string, stdout, stderr io.Writer) int {
	c := newCLI(stdout, stderr)
	levelChosen := false
	c.app.GetFlag(flag.LevelFlagName).IsSetByUser(&levelChosen)
	command, over, code, err := usage.Parse(c.app, args)
	if over { // --help, --version
		return code
	}
	if err != nil {
		fmt.Fprintln(stderr, usage.Complain(c.app, args, err))
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The second Ctrl-C ends the process at once.
	context.AfterFunc(ctx, stop)
	c.log.Writer = stderr
	if !levelChosen {
		_ = c.log.Level.Set("warn") // a level that exists
	}
	switch err := c.runs[command](ctx, promslog.New(&c.log)); {
	case err == nil:
		return exitOK
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return exitInterrupted
	default:
		fmt.Fprintf(stderr, "laxity-bench: %v\n", err)
		return exitFailure
	}
}

func newCLI(stdout, stderr io.Writer) *cli {
	c := &cli{
		app: kingpin.New("laxity-bench", help), out: stdout, err: stderr,
		runs: map[string]func(context.Context, *slog.Logger) error{},
	}
	c.app.UsageWriter(stdout)
	c.app.ErrorWriter(stderr)
	usage.Shorten(c.app)
	c.app.Version(usage.Version("laxity-bench"))
	c.app.HelpFlag.Short('h')
	flag.AddFlags(c.app, &c.log)
	c.addExperiments()
	c.addList()
	c.addReport()
	c.addHidden()
	return c
}

// command registers a command and what runs it.
func (c *cli) command(name, help string, run func(context.Context, *slog.Logger) error) *kingpin.CmdClause {
	c.runs[name] = run
	return c.app.Command(name, help)
}

func writeJSON(w io.Writer, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(w, string(b))
	return err
}
