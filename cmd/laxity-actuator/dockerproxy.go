package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/promslog"

	"github.com/laxity/laxity/internal/dockerproxy"
)

type dockerProxyCommand struct {
	name                   string
	client, listen, engine string
}

func newDockerProxyCommand(app *kingpin.Application) *dockerProxyCommand {
	p := &dockerProxyCommand{}
	cmd := app.Command("docker-proxy", "Stand between a program and the Docker socket, and let through only the calls that it makes. The lists are in actuator/README.md.")
	cmd.Flag("for", "Whose calls to let through: exporter (reads), or actuator (which pauses and unpauses; the guardian too).").
		Required().EnumVar(&p.client, slices.Sorted(maps.Keys(dockerproxy.Clients))...)
	cmd.Flag("listen", "Unix socket to make; whoever may open it may make these calls. It belongs to the user that the proxy runs as.").
		Required().StringVar(&p.listen)
	cmd.Flag("docker.socket", "The engine's socket.").Default("/var/run/docker.sock").StringVar(&p.engine)
	p.name = cmd.FullCommand()
	return p
}

func (p *dockerProxyCommand) run(ctx context.Context) error {
	logger := promslog.New(&promslog.Config{})
	l, err := listenUnix(ctx, p.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	server := &http.Server{
		Handler: dockerproxy.New(dockerproxy.Options{
			Dial: func(ctx context.Context) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", p.engine)
			},
			Allow: dockerproxy.Clients[p.client], Logger: logger,
		}),
		ReadHeaderTimeout: 10 * time.Second,
	}
	go func() {
		<-ctx.Done()
		_ = server.Close() // streams of events never end by themselves
	}()
	logger.Info("lets calls through", "for", p.client, "socket", p.listen)
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// listenUnix makes a unix socket that its owner alone may open, in place of one
// that nobody listens on any more.
func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	if i, err := os.Lstat(path); err == nil && i.Mode()&fs.ModeSocket == 0 {
		return nil, fmt.Errorf("%s is there and is no socket", path)
	}
	if c, err := new(net.Dialer).DialContext(ctx, "unix", path); err == nil {
		_ = c.Close()
		return nil, fmt.Errorf("somebody listens on %s already", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// unixPath is the path of an address such as unix:///run/x.sock.
func unixPath(address string) (string, bool) { return strings.CutPrefix(address, "unix://") }
