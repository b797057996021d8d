package sim

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/laxity/laxity/exporter/device"
)

const dialTimeout = 2 * time.Second

// Dial returns a device that reads the simulated GPUs behind a unix socket. It
// fails, wrapping device.ErrUnavailable, when nobody answers there now. Later
// the server may come and go: Read returns an error while it is gone and
// connects again at the next call. Read returns early when its context ends.
func Dial(socket string) (device.Device, error) {
	c := &client{socket: socket}
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	if err := c.connect(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

type client struct {
	socket string
	conn   net.Conn // nil when not connected
	lines  *bufio.Reader
	closed bool
}

func (c *client) Read(ctx context.Context) (device.Reading, error) {
	var w wireReading
	if err := c.read(ctx, "read", &w); err != nil {
		return device.Reading{}, err
	}
	if w.Error != "" {
		return device.Reading{}, fmt.Errorf("simulated GPU: %s", w.Error)
	}
	return w.reading(), nil
}

func (c *client) Close() error {
	c.closed = true
	if c.conn == nil {
		return nil
	}
	err := c.conn.Close()
	c.conn = nil
	return err
}

func (c *client) connect(ctx context.Context) error {
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "unix", c.socket)
	if err != nil {
		return fmt.Errorf("%w: no simulated GPU answers: %w (is its server running?)", device.ErrUnavailable, err)
	}
	c.conn, c.lines = conn, bufio.NewReader(conn)
	if _, err := c.ask(ctx, greeting+" "+version+" monitor"); err != nil {
		return c.fail(ctx, err)
	}
	return nil
}

// fail hangs up, so that the next Read connects afresh.
func (c *client) fail(ctx context.Context, err error) error {
	c.conn.Close()
	c.conn = nil
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return fmt.Errorf("simulated GPU at %s: %w", c.socket, err)
}

func (c *client) ask(ctx context.Context, request string) (string, error) {
	conn := c.conn
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := fmt.Fprintln(conn, request); err != nil {
		return "", err
	}
	line, err := c.lines.ReadString('\n')
	if err != nil {
		return "", err
	}
	if !stop() { // the deadline may have been set: this connection is of no use any more
		return "", ctx.Err()
	}
	line = strings.TrimRight(line, "\n")
	if rest, ok := strings.CutPrefix(line, "err "); ok {
		return "", errors.New(rest)
	}
	return strings.TrimPrefix(strings.TrimPrefix(line, "ok"), " "), nil
}
