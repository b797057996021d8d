package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/laxity/laxity/actuator/journal"
)

// healthTimeout bounds one question; a service that takes longer is not well.
const healthTimeout = 2 * time.Second

type healthCommand struct {
	name    string
	targets []string
}

// newHealthCommand is for health checks where there is no shell and no curl, as
// in our image.
func newHealthCommand(app *kingpin.Application) *healthCommand {
	h := &healthCommand{}
	cmd := app.Command("health", "Ask whether something is well; exit code 0: all are.")
	cmd.Arg("target", "http://HOST:PORT/PATH must answer 200; unix:///PATH is a Docker socket, or a proxy of one, that must answer a ping; guardian:DIR is whether a guardian watches this state folder.").
		Required().StringsVar(&h.targets)
	h.name = cmd.FullCommand()
	return h
}

func (h *healthCommand) run(ctx context.Context) error {
	var errs []error
	for _, target := range h.targets {
		if err := health(ctx, target); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", target, err))
		}
	}
	return errors.Join(errs...)
}

func health(ctx context.Context, target string) error {
	if dir, ok := strings.CutPrefix(target, "guardian:"); ok {
		if !journal.Taken(journal.GuardianLock(dir)) {
			return errors.New("no guardian watches")
		}
		return nil
	}
	url, transport := target, &http.Transport{}
	if path, ok := unixPath(target); ok {
		url = "http://docker/_ping"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
	}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := (&http.Client{Transport: transport, Timeout: healthTimeout}).Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	return nil
}
