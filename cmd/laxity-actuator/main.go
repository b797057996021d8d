// Command laxity-actuator acts on a node: it takes Alertmanager's notifications
// in, looks at what the exporter says is true, and pauses and unpauses the
// containers that share a GPU. Its subcommand guardian releases everything that
// an actuator left paused; docker-proxy, health and token are what a stack of
// services needs around the two.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kingpin/v2"

	"github.com/laxity/laxity/cmd/internal/channeldriver"
	"github.com/laxity/laxity/cmd/internal/swaphelper"
	"github.com/laxity/laxity/cmd/internal/usage"
	"github.com/laxity/laxity/internal/plain"
	"github.com/laxity/laxity/internal/priority"
)

func main() {
	priority.FewCores()
	os.Exit(command(os.Args[1:]))
}

const help = `Decides which container may use a GPU now. It holds only containers with a laxity.* label. It
releases them when it ends. If it is killed, a guardian releases them.

  laxity-actuator --exporter=http://127.0.0.1:9870
  laxity-actuator --dry-run                       decide, and change nothing
  laxity-actuator guardian                        as a unit of its own; start the first with --guardian=require

Exit codes: 0 ended by a signal, 1 failed (the last line says why and what to do; of the
guardian also: ended before it could release everything), 2 wrong usage.`

// commands are what the program can do.
type commands struct {
	serve    *serveCommand
	guardian *guardianCommand
	proxy    *dockerProxyCommand
	health   *healthCommand
	token    *tokenCommand
}

// application has every command and flag.
func application() (*kingpin.Application, commands) {
	app := kingpin.New("laxity-actuator", help)
	app.HelpFlag.Short('h')
	app.Version(usage.Version("laxity-actuator"))
	app.UsageWriter(os.Stdout).UsageTemplate(kingpin.LongHelpTemplate)
	return app, commands{
		newServeCommand(app), newGuardianCommand(app), newDockerProxyCommand(app), newHealthCommand(app), newTokenCommand(app),
	}
}

// command is main with its arguments; it returns the exit status.
func command(args []string) int {
	app, c := application()
	var helper swaphelper.Options
	helper.Register(app.Command(swaphelper.Name, "Call the CUDA driver's checkpoint API for the actuator, which starts it."))
	app.Command(channeldriver.HelperName, channeldriver.HelperMeans).Hidden()
	chosen, err := app.Parse(args)
	if err != nil {
		fmt.Fprintln(plain.NewWriter(os.Stderr), usage.Complain(app, args, err))
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch chosen {
	case c.guardian.name:
		err = c.guardian.run(ctx)
	case c.proxy.name:
		err = c.proxy.run(ctx)
	case c.health.name:
		err = c.health.run(ctx)
	case c.token.name:
		err = c.token.run()
	case channeldriver.HelperName:
		err = channeldriver.Help()
	case swaphelper.Name:
		err = helper.Run()
	default:
		err = c.serve.run(ctx)
	}
	switch {
	case err == nil:
		return 0
	case usage.Is(err):
		fmt.Fprintln(plain.NewWriter(os.Stderr), usage.Complain(app, args, err))
		return 2
	default:
		fmt.Fprintln(plain.NewWriter(os.Stderr), "laxity-actuator:", err)
		return 1
	}
}
