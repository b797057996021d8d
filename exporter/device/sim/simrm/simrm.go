// Package simrm controls the channels of processes on a simulated GPU, with the calls
// and the types of internal/rm, which does it on real ones.
//
// It imports internal/rm and the standard library.
package simrm

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/laxity/laxity/internal/rm"
)

// Error is what the simulated GPU refused with: a code of its protocol and a text.
type Error struct{ Code, Text string }

func (e Error) Error() string { return "simulated GPU: " + e.Text }

// Is gives the codes the meaning that callers act on.
func (e Error) Is(target error) bool {
	return target == rm.ErrGone && e.Code == "process" || target == rm.ErrChanged && e.Code == "group" ||
		target == rm.ErrUnsupported && e.Code == "support"
}

// Manager controls the channels behind one socket. Each call has a connection of its own,
// as each call to a real driver has a duplicate of a descriptor of its own: so
// nothing is kept between calls, and calls do not wait for each other. It is safe for
// concurrent use. When nobody answers on the socket, its processes use no GPU any more.
type Manager struct{ socket string }

// New makes one for the simulated GPU behind this unix socket. Nothing is connected yet.
func New(socket string) *Manager { return &Manager{socket: socket} }

// Check is nil when the simulated GPU answers and lets this process control channels.
func (m *Manager) Check(ctx context.Context) error {
	_, err := m.ask(ctx, "")
	return err
}

// Find returns the compute groups of a process, in order of the GPUs; none when it uses no
// GPU.
func (m *Manager) Find(ctx context.Context, p rm.Process) ([]rm.Group, error) {
	text, err := m.ask(ctx, "groups "+name(p))
	if errors.Is(err, rm.ErrGone) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find the channel groups of process %d: %w", p.PID, err)
	}
	var list []rm.Group
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, fmt.Errorf("find the channel groups of process %d: %w", p.PID, err)
	}
	for i := range list {
		list[i].Process = p
	}
	return list, nil
}

// Slice reads a group's time slice.
func (m *Manager) Slice(ctx context.Context, g rm.Group) (time.Duration, error) {
	text, err := m.ask(ctx, fmt.Sprintf("slice %s %#x %#x", name(g.Process), g.Client, g.Handle))
	if err != nil {
		return 0, fmt.Errorf("read the slice of process %d: %w", g.PID, err)
	}
	micros, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read the slice of process %d: %w", g.PID, err)
	}
	return time.Duration(micros) * time.Microsecond, nil
}

// SetSlice changes it: 1 µs to 100 s, in whole microseconds.
func (m *Manager) SetSlice(ctx context.Context, g rm.Group, d time.Duration) error {
	_, err := m.ask(ctx, fmt.Sprintf("setslice %s %#x %#x %d", name(g.Process), g.Client, g.Handle, d.Microseconds()))
	if err != nil {
		return fmt.Errorf("set the slice of process %d: %w", g.PID, err)
	}
	return nil
}

// Switch takes the channels of groups off or on: all of one process, or none. Those of
// several processes are one call each.
func (m *Manager) Switch(ctx context.Context, groups []rm.Group, on bool) error {
	word := "off"
	if on {
		word = "on"
	}
	type client struct {
		rm.Process
		id uint32
	}
	handles := map[client]string{}
	var order []client
	for _, g := range groups {
		c := client{g.Process, g.Client}
		if _, seen := handles[c]; !seen {
			order = append(order, c)
		}
		handles[c] += fmt.Sprintf(" %#x", g.Handle)
	}
	for _, c := range order {
		if _, err := m.ask(ctx, fmt.Sprintf("%s %s %#x%s", word, name(c.Process), c.id, handles[c])); err != nil {
			return fmt.Errorf("switch the channels of process %d %s: %w", c.PID, word, err)
		}
	}
	return nil
}

// SwitchAsOne is Switch for groups whose work waits for each other: a connection for each process
// on each GPU first, then all calls side by side. Where one is refused, all of them are on
// again. skew is the time from the end of the first GPU's calls to that of the last one's.
func (m *Manager) SwitchAsOne(ctx context.Context, groups []rm.Group, on bool) (skew time.Duration, err error) {
	calls, err := m.prepare(ctx, groups)
	defer func() {
		for _, c := range calls {
			c.close()
		}
	}()
	if err != nil && !on {
		return 0, err
	}
	skew, failed := switchAll(ctx, calls, on)
	if err = errors.Join(err, failed); on || err == nil {
		return skew, err
	}
	again, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	for _, g := range groups {
		if undo := m.Switch(again, []rm.Group{g}, true); undo != nil && !errors.Is(undo, rm.ErrGone) {
			err = errors.Join(err, undo)
		}
	}
	return 0, err
}

// ready is a call that can be made at once.
type ready struct {
	*conn
	process rm.Process
	handles string
}

// prepare connects for each process on each GPU. It returns those that it could.
func (m *Manager) prepare(ctx context.Context, groups []rm.Group) (calls []ready, err error) {
	type of struct {
		rm.Process
		client uint32
		gpu    string
	}
	by := map[of]string{}
	for _, g := range groups {
		by[of{g.Process, g.Client, g.GPU}] += fmt.Sprintf(" %#x", g.Handle)
	}
	for o, handles := range by {
		c, failed := m.connect(ctx)
		if failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		calls = append(calls, ready{c, o.Process, fmt.Sprintf("%#x%s", o.client, handles)})
	}
	return calls, err
}

func switchAll(ctx context.Context, calls []ready, on bool) (skew time.Duration, err error) {
	word := "off"
	if on {
		word = "on"
	}
	ends, errs := make([]time.Time, len(calls)), make([]error, len(calls))
	var wait sync.WaitGroup
	for i, c := range calls {
		wait.Go(func() {
			if _, err := c.ask(ctx, fmt.Sprintf("%s %s %s", word, name(c.process), c.handles)); err != nil {
				errs[i] = fmt.Errorf("switch the channels of process %d %s: %w", c.process.PID, word, err)
			}
			ends[i] = time.Now()
		})
	}
	wait.Wait()
	if len(ends) > 0 {
		skew = slices.MaxFunc(ends, time.Time.Compare).Sub(slices.MinFunc(ends, time.Time.Compare))
	}
	return skew, errors.Join(errs...)
}

func name(p rm.Process) string { return fmt.Sprintf("%d %d", p.PID, p.Start) }

// ask sends one request and returns the text of its answer. It returns when ctx ends.
func (m *Manager) ask(ctx context.Context, request string) (string, error) {
	c, err := m.connect(ctx)
	if err != nil {
		return "", err
	}
	defer c.close()
	if request == "" {
		return "", nil
	}
	return c.ask(ctx, request)
}

// conn is a connection of a manager.
type conn struct {
	net   net.Conn
	lines *bufio.Reader
}

func (c *conn) close() { _ = c.net.Close() }

func (m *Manager) connect(ctx context.Context) (*conn, error) {
	opened, err := (&net.Dialer{}).DialContext(ctx, "unix", m.socket)
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) {
		// All that computed there has ended with it.
		return nil, fmt.Errorf("%w: no simulated GPU answers: %w", rm.ErrGone, err)
	}
	if err != nil {
		return nil, fmt.Errorf("no simulated GPU answers: %w", err)
	}
	c := &conn{opened, bufio.NewReader(opened)}
	if _, err := c.ask(ctx, "laxity-sim 1 manager"); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *conn) ask(ctx context.Context, request string) (string, error) {
	defer context.AfterFunc(ctx, func() { _ = c.net.SetDeadline(time.Unix(1, 0)) })()
	text, err := exchange(c.net, c.lines, request)
	if err != nil && ctx.Err() != nil {
		return "", ctx.Err()
	}
	return text, err
}

func exchange(conn net.Conn, lines *bufio.Reader, request string) (string, error) {
	if _, err := fmt.Fprintln(conn, request); err != nil {
		return "", err
	}
	line, err := lines.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimRight(line, "\n")
	if rest, refused := strings.CutPrefix(line, "err "); refused {
		code, text, _ := strings.Cut(rest, " ")
		return "", Error{Code: code, Text: text}
	}
	return strings.TrimPrefix(strings.TrimPrefix(line, "ok"), " "), nil
}
