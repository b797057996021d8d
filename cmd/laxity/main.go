// Command laxity gives containers that share GPUs deadlines: all in one process
// for one machine (up), views (ps, top, nodes, why), the examination of a machine
// (check), and the demonstration. It is also the Docker CLI plugin, as
// docker-laxity.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/common/promslog/flag"

	"github.com/laxity/laxity/cmd/internal/usage"
	"github.com/laxity/laxity/internal/plain"
	"github.com/laxity/laxity/internal/priority"
)

// Exit codes, as documented in --help.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitFindings    = 3
	exitInterrupted = 130 // 128 + SIGINT, as shells have it
)

const help = `Laxity gives containers that share GPUs deadlines, from outside, with no change to their images.

Label a container with its deadline and start Laxity beside the Docker engine:

  docker run --label laxity.deadline=9s ... IMAGE
  laxity up

See what is there, who waits and why:

  laxity ps
  laxity why CONTAINER
  sudo laxity check

Exit codes: 0 done, 1 failed (the last line on standard error says why and what to do), 2 wrong
usage, 3 laxity check found something that fails, 130 stopped by Ctrl-C before it was done.
laxity run and laxity create have docker's: the container's own, or 125 when no container ran; and
122 when --require refused one.
NO_COLOR turns colours off; where the output is no terminal there are none.`

// cli is what every command shares.
type cli struct {
	app  *kingpin.Application
	out  io.Writer
	err  io.Writer // errors and warnings, beside the output
	log  promslog.Config
	runs map[string]func(ctx context.Context, log *slog.Logger) error
	// quiet commands have a person as reader: by default they log warnings only.
	quiet map[string]bool
	// logFormatChosen: --log.format is on the command line.
	logFormatChosen bool
	// httpConfig is the file with credentials for exporter and actuator.
	httpConfig string
	// tokenFile is named by a person; empty: the default.
	tokenFile string
	// endless commands run until they are stopped, so stopping them is not an interruption.
	endless map[string]bool
}

func main() {
	priority.FewCores()
	os.Exit(realMain(os.Args, os.Stdout, os.Stderr))
}

// realMain is main without the process: it parses, runs one command, and returns the
// exit code.
func realMain(args []string, stdout, stderr io.Writer) int {
	if filepath.Base(args[0]) == "docker-laxity" {
		return runPlugin(args[1:], stdout, stderr)
	}
	return runCommand(invocation{args: args[1:]}, stdout, stderr)
}

// runCommand runs the commands whose flags are docker's, and sends all others to runOwn.
func runCommand(i invocation, stdout, stderr io.Writer) int {
	switch args := i.args; {
	case len(args) > 0 && isDocker(args[0]):
		return runDocker(args[0], args[1:], i.options, stdout, stderr)
	case len(args) > 1 && args[0] == "sim" && args[1] == "run":
		return runSim(args[2:], i.options, stdout, stderr)
	case len(args) > 2 && args[0] == "--completion-bash" && isDocker(args[1]):
		completeRun(stdout, args[1], runFlags, args[2:])
		return exitOK
	case len(args) > 3 && args[0] == "--completion-bash" && args[1] == "sim" && args[2] == "run":
		completeSimRun(stdout, args[3:])
		return exitOK
	}
	return runOwn(i, stdout, stderr)
}

// runOwn runs a command whose flags are parsed here.
func runOwn(i invocation, stdout, stderr io.Writer) int {
	args := i.args
	stdout, stderr = plain.NewWriter(stdout), plain.NewWriter(stderr)
	c := newCLI(stdout, stderr)
	levelChosen := false
	c.app.GetFlag(flag.LevelFlagName).IsSetByUser(&levelChosen)
	c.app.GetFlag(flag.FormatFlagName).IsSetByUser(&c.logFormatChosen)
	command, over, code, err := usage.Parse(c.app, args)
	if over { // --help, --version, completion
		return code
	}
	if err == nil {
		err = usage.Wrong(noEngineOption(i.options))
	}
	if err != nil {
		fmt.Fprintln(stderr, usage.Complain(c.app, args, err))
		return exitUsage
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if i.plugin {
		go followPlugin(os.Getenv(pluginSocket), stop)
	}
	// The second Ctrl-C ends the process at once; the guardian releases what was held.
	context.AfterFunc(ctx, stop)
	c.log.Writer = stderr
	if (c.quiet[command] || command == "up" && c.talks()) && !levelChosen {
		_ = c.log.Level.Set("warn") // a valid level: Set cannot fail
	}
	err = unread(c.runs[command](ctx, promslog.New(&c.log)))
	stopped := errors.Is(err, context.Canceled) && ctx.Err() != nil
	switch {
	case err == nil, stopped && c.endless[command]:
		return exitOK
	case errors.Is(err, errFindings):
		return exitFindings
	case stopped:
		return exitInterrupted
	case usage.Is(err):
		fmt.Fprintln(stderr, usage.Complain(c.app, args, err))
		return exitUsage
	default:
		fmt.Fprintf(stderr, "laxity: %v\n", err)
		return exitFailure
	}
}

// newCLI has every flag and command.
func newCLI(stdout, stderr io.Writer) *cli {
	c := &cli{
		app: kingpin.New("laxity", help), out: stdout, err: stderr, runs: map[string]func(context.Context, *slog.Logger) error{},
		quiet: map[string]bool{}, endless: map[string]bool{"up": true, "guardian": true},
	}
	c.app.UsageWriter(stdout)
	usage.Shorten(c.app)
	c.app.ErrorWriter(stderr)
	c.app.Version(usage.Version("laxity"))
	c.app.HelpFlag.Short('h')
	flag.AddFlags(c.app, &c.log)
	c.app.Flag("http.config.file", httpConfigHelp).Envar(httpConfigEnv).StringVar(&c.httpConfig)
	c.app.Flag("token.file", tokenHelp).Envar(tokenEnv).StringVar(&c.tokenFile)
	c.addUp()
	c.addOff()
	c.addDemo()
	c.addSim()
	c.addViews()
	c.addChanges()
	c.addWhy()
	c.addEvents()
	c.addActions()
	c.addPlacement()
	c.addCheck()
	c.addCompletion()
	c.addHidden()
	return c
}

// isDocker reports whether a command's flags are docker's.
func isDocker(command string) bool { return command == "run" || command == "create" }

// command registers a command and what runs it.
func (c *cli) command(name, help string, run func(context.Context, *slog.Logger) error) *kingpin.CmdClause {
	c.runs[name] = run
	return c.app.Command(name, help)
}
