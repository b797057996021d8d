// Command laxity-exporter is the daemon that observes the GPU tasks of one node
// and serves what it sees to Prometheus and to the actuator. It changes nothing.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/oklog/run"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/exporter-toolkit/web"

	"github.com/laxity/laxity/exporter"
	"github.com/laxity/laxity/internal/access"
	"github.com/laxity/laxity/internal/plain"
	"github.com/laxity/laxity/internal/priority"
	"github.com/laxity/laxity/internal/webserver"
)

const (
	exitFailure = 1
	exitUsage   = 2

	// The daemon shares a machine with the tenants. With 100 containers its live heap is a
	// few MiB, which the runtime collects at its own pace. GOMEMLIMIT in the environment wins.
	memoryLimit = 64 << 20
)

// shutdownLimit is how long requests may take to end. Tests change it.
var shutdownLimit = 5 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := realMain(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// realMain is main without the process. It returns the exit code.
func realMain(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg, done, err := parse(args, stdout, stderr)
	if done || err != nil {
		if err != nil {
			fmt.Fprintln(plain.NewWriter(stderr), err)
			return exitUsage
		}
		return 0
	}
	setRuntime()
	log := promslog.New(&cfg.log)
	raise(cfg.nice, log)
	if err := serve(ctx, cfg, log); err != nil {
		fmt.Fprintf(plain.NewWriter(stderr), "laxity-exporter: %v\n", err)
		return exitFailure
	}
	return 0
}

func setRuntime() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	priority.FewCores()
}

// raise says once what came of it: an exporter works without, only later when all
// cores compute.
func raise(nice int, log *slog.Logger) {
	if nice == 0 {
		return
	}
	if err := priority.Raise(nice); err != nil {
		log.Info("the priority of this process stays as it is", "nice", nice, "reason", err)
		return
	}
	log.Info("this process goes before tenants", "nice", nice)
}

// serve runs the exporter and its web server until ctx ends or one of them fails.
func serve(ctx context.Context, cfg *config, log *slog.Logger) error {
	var err error
	if cfg.exporter.Access, err = (access.Files{WebConfig: *cfg.web.WebConfigFile, Tokens: cfg.tokens, Hosts: cfg.hosts}).Open(); err != nil {
		return err
	}
	cfg.exporter.Logger = log
	e, err := exporter.New(cfg.exporter)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := webserver.New(e.Handler(), log)
	server.BaseContext = func(net.Listener) context.Context { return ctx } // streams end with it
	var g run.Group
	g.Add(func() error { return e.Run(ctx) }, func(error) { cancel() })
	g.Add(func() error {
		err := web.ListenAndServe(server, cfg.web, log)
		if errors.Is(err, http.ErrServerClosed) {
			return nil
		}
		return err
	}, func(error) { shutdown(server) })
	log.Info("laxity-exporter runs", "node", cfg.exporter.Node, "device", cfg.exporter.Device)
	return g.Run()
}

// shutdown lets scrapes end.
func shutdown(server *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownLimit)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		_ = server.Close()
	}
}
