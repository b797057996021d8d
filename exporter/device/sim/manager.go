package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// manager serves whoever may control other processes' channels: as with a real driver
// that is root on the host, and no tenant in a container.
func (s *session) manager(ctx context.Context) error {
	peer, err := peerOf(s.conn)
	if err == nil {
		defer peer.Close()
		err = peer.mayManage()
		ctx = context.WithValue(ctx, callerKey{}, peer)
	}
	if err := errors.Join(err, s.reply("", err)); err != nil {
		return err
	}
	for {
		line, err := s.readLine()
		if err != nil {
			return err
		}
		text, err := s.gpu.manage(ctx, strings.Fields(line))
		if err := s.reply(text, err); err != nil {
			return err
		}
		if errors.Is(err, errProtocol) {
			return err
		}
	}
}

// callerKey is the key of a manager's peer in the context of its requests.
type callerKey struct{}

// callerEnded reports whether the manager that this request is of has ended. A real driver is called by a thread of the
// manager, which returns before its process can be seen to have ended: so nothing comes into effect after that.
func callerEnded(ctx context.Context) bool {
	caller, ok := ctx.Value(callerKey{}).(*peer)
	return ok && caller.ended()
}

// mayManage is nil for this server's user, or root, in this server's PID namespace.
func (p *peer) mayManage() error {
	own, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return err
	}
	theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", p.PID))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotPermitted, err)
	}
	if theirs != own || p.uid != 0 && p.uid != uint32(os.Geteuid()) {
		return fmt.Errorf("%w: only root on the host acts on other processes", ErrNotPermitted)
	}
	return nil
}

// manage carries out one request of a manager.
func (g *GPU) manage(ctx context.Context, words []string) (string, error) {
	if len(words) < 3 {
		return "", fmt.Errorf("%w: a manager says what to do with which process", errProtocol)
	}
	pid, err := strconv.Atoi(words[1])
	if err != nil {
		return "", fmt.Errorf("%w: %.20q is no PID", errProtocol, words[1])
	}
	start, err := strconv.ParseUint(words[2], 10, 64)
	if err != nil {
		return "", fmt.Errorf("%w: %.20q is no start time", errProtocol, words[2])
	}
	t, args := Tenant{PID: pid, Start: start}, words[3:]
	numbers, err := uints(args)
	if err != nil {
		return "", err
	}
	switch {
	case words[0] == "groups" && len(args) == 0:
		list, err := g.Groups(ctx, t)
		if err != nil {
			return "", err
		}
		text, err := json.Marshal(list)
		return string(text), err
	case words[0] == "slice" && len(args) == 2:
		d, err := g.Slice(ctx, t, uint32(numbers[0]), uint32(numbers[1]))
		return strconv.FormatInt(d.Microseconds(), 10), err
	case words[0] == "setslice" && len(args) == 3:
		micros := min(numbers[2], uint64(2*maxSlice/time.Microsecond))
		return "", g.SetSlice(ctx, t, uint32(numbers[0]), uint32(numbers[1]), time.Duration(micros)*time.Microsecond)
	case (words[0] == "off" || words[0] == "on") && len(args) >= 2:
		var handles []uint32
		for _, n := range numbers[1:] {
			handles = append(handles, uint32(n))
		}
		return "", g.SwitchChannels(ctx, t, uint32(numbers[0]), handles, words[0] == "on")
	default:
		return "", fmt.Errorf("%w: unknown request %.20q, or with other arguments", errProtocol, words[0])
	}
}

func uints(words []string) ([]uint64, error) {
	var list []uint64
	for _, w := range words {
		n, err := strconv.ParseUint(w, 0, 64)
		if err != nil {
			return nil, fmt.Errorf("%w: %.20q is not a number", errProtocol, w)
		}
		list = append(list, n)
	}
	return list, nil
}
