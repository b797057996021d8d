// Command laxity-actuator acts on a node: it takes Alertmanager's notifications
// in, looks at what the exporter says is true, and pauses and unpauses the
// containers that share a GPU. Its subcommand guardian lets everything go that
// an actuator left paused.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kingpin/v2"
)

func main() {
	os.Exit(command(os.Args[1:]))
}

// command is main with its arguments; it returns the exit status.
func command(args []string) int {
	app := kingpin.New("laxity-actuator",
		"Decides which container may use a GPU now. It pauses only containers with a laxity.* label, "+
			"lets go what it paused when it ends, and a guardian does so when it is killed.")
	app.HelpFlag.Short('h')
	app.UsageWriter(os.Stdout)
	app.UsageTemplate(kingpin.LongHelpTemplate)
	serve := newServeCommand(app)
	guard := newGuardianCommand(app)

	chosen, err := app.Parse(args)
	if err != nil {
		fmt.Fprintf(os.Stderr, "laxity-actuator: %v\nTry laxity-actuator --help\n", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch chosen {
	case guard.name:
		err = guard.run(ctx)
	default:
		err = serve.run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "laxity-actuator:", err)
		return 1
	}
	return 0
}
