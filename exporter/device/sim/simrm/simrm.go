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
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/laxity/laxity/internal/rm"
)

// Error is what the simulated GPU refused with: a code of its protocol and a text.
type Error struct{ Code, Text string }

func (e Error) Error() string { return "simulated GPU: " + e.Text }

// Is gives the codes the meaning that callers act on.
func (e Error) Is(target error) bool {
	return target == rm.ErrGone && e.Code == "process" || target == rm.ErrChanged && e.Code == "group"
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

func name(p rm.Process) string { return fmt.Sprintf("%d %d", p.PID, p.Start) }

// ask sends one request and returns the text of its answer. It returns when ctx ends.
func (m *Manager) ask(ctx context.Context, request string) (string, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", m.socket)
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) {
		// All that computed there has ended with it.
		return "", fmt.Errorf("%w: no simulated GPU answers: %w", rm.ErrGone, err)
	}
	if err != nil {
		return "", fmt.Errorf("no simulated GPU answers: %w", err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	lines := bufio.NewReader(conn)
	requests := []string{"laxity-sim 1 manager", request}
	var text string
	for _, r := range requests {
		if r == "" {
			break
		}
		if text, err = exchange(conn, lines, r); err != nil {
			if ctx.Err() != nil {
				return "", ctx.Err()
			}
			return "", err
		}
	}
	return text, nil
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
