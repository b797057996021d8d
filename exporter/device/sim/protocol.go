package sim

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The protocol, version 1. Lines of ASCII words, at most maxLine bytes with the
// newline; one answer for each request, in order. An answer is "ok …" or
// "err CODE text". After "err protocol" the server closes the connection; the
// other errors leave it open.
//
// The first line says who speaks:
//
//	laxity-sim 1 tenant    → ok GPUS          number of GPUs that can be used
//	laxity-sim 1 monitor   → ok
//	laxity-sim 1 agent     → ok               then the server asks "turn", and the tenant's
//	                                          thread answers "ok" as soon as it runs
//	laxity-sim 1 manager   → ok               root in the server's PID namespace only
//
// A monitor asks "read", or "cards", and gets "ok JSON" (see wire.go). A tenant is the process
// that the kernel names as the socket's peer, whatever it says; all connections
// of one process are one tenant. It may open as many as it has threads that
// block. I is the number of a GPU, from 0:
//
//	device I               → ok UUID MEMORY IN OUT NAME   bytes; IN, OUT: bytes per piece of a copy
//	open I                 → ok               context is there (blocks); "ok more": ask again, there
//	                                          is more to do for it
//	close I                → ok
//	alloc I BYTES          → ok ADDRESS
//	free I ADDRESS         → ok
//	memory I               → ok FREE TOTAL
//	launch I FLOPS         → ok NUMBER        at once
//	launchns I NANOSECONDS → ok NUMBER        at once
//	sync I NUMBER          → ok               kernels up to it have ended (blocks); 0: all
//	query I NUMBER         → ok 0|1           1: they have ended
//	copy I in|out BYTES    → ok               after all kernels before it (blocks)
//	power I MILLIWATTS     → ok               what GPU I draws from now on while it computes
//
// A tenant may use the checkpoint API on itself, and root in the server's PID namespace
// on any other, by its PID as the server sees it; the driver asks for as much. All of
// these block, as the driver does:
//
//	state PID              → ok STATE         0 running, 1 locked, 2 checkpointed, 3 failed
//	lock PID MILLISECONDS  → ok               0: no limit
//	checkpoint PID         → ok
//	restore PID            → ok
//	unlock PID             → ok
//
// A manager controls channels, as root does through the resource manager: no tenant may. A
// process is a PID as the server sees it, and when it started (field 22 of its stat); C
// and H are a client and a handle, decimal or with 0x:
//
//	groups PID START            → ok JSON     see Group
//	slice PID START C H         → ok MICROSECONDS
//	setslice PID START C H MICROSECONDS → ok  at once
//	off PID START C H…          → ok          all these groups, or none
//	on PID START C H…           → ok
const (
	greeting = "laxity-sim"
	version  = "1"
	maxLine  = 256
)

// pieceTime is how long one piece of a copy should take: what a frozen tenant
// still gets done.
const pieceTime = 10 * time.Millisecond

var errProtocol = errors.New("protocol error")

// errorCode is the word that stands for err on the wire.
func errorCode(err error) string {
	for _, c := range []struct {
		err  error
		code string
	}{
		{errProtocol, "protocol"},
		{ErrOutOfMemory, "memory"},
		{ErrNoDevice, "device"},
		{ErrNoContext, "context"},
		{ErrInvalid, "invalid"},
		{ErrLost, "lost"},
		{ErrExited, "exited"},
		{ErrNoProcess, "process"},
		{ErrState, "state"},
		{ErrNotReady, "ready"},
		{ErrNotSupported, "support"},
		{ErrNoGroup, "group"},
		{ErrNotPermitted, "permission"},
	} {
		if errors.Is(err, c.err) {
			return c.code
		}
	}
	return "internal"
}

// answer carries out one request of a tenant; mayManage says why it may not act on
// others.
func answer(ctx context.Context, p *Process, line string, mayManage error) (string, error) {
	words := strings.Fields(line)
	if len(words) == 0 {
		return "", fmt.Errorf("%w: empty line", errProtocol)
	}
	cmd, ok := commands[words[0]]
	if !ok {
		return "", fmt.Errorf("%w: unknown request %.20q", errProtocol, words[0])
	}
	if len(words) != 2+cmd.args {
		return "", fmt.Errorf("%w: %s takes %d arguments, got %d", errProtocol, words[0], 1+cmd.args, len(words)-1)
	}
	i, err := strconv.Atoi(words[1])
	if err != nil {
		return "", fmt.Errorf("%w: %.20q is not a number", errProtocol, words[1])
	}
	if cmd.process && i != p.pid && mayManage != nil {
		return "", mayManage
	}
	return cmd.run(ctx, p, i, words[2:])
}

type command struct {
	args int // after the first number
	run  func(ctx context.Context, p *Process, i int, args []string) (string, error)
	// process: the first number is a PID, not a GPU.
	process bool
}

var commands = map[string]command{
	"device": {args: 0, run: func(_ context.Context, p *Process, i int, _ []string) (string, error) { return p.gpu.describe(i) }},
	"open":   {args: 0, run: runOpen},
	"close":  {args: 0, run: func(_ context.Context, p *Process, i int, _ []string) (string, error) { return "", p.Close(i) }},
	"alloc":  {args: 1, run: withNumber(runAlloc)},
	"free": {args: 1, run: withNumber(func(_ context.Context, p *Process, i int, address uint64) (string, error) {
		return "", p.Free(i, address)
	})},
	"memory": {args: 0, run: runMemory},
	"launch": {args: 1, run: runLaunch},
	"launchns": {args: 1, run: withNumber(func(_ context.Context, p *Process, i int, ns uint64) (string, error) {
		return number(p.LaunchFor(i, seconds(float64(ns)/1e9)))
	})},
	"sync": {args: 1, run: withNumber(func(ctx context.Context, p *Process, i int, n uint64) (string, error) {
		return "", p.Sync(ctx, i, n)
	})},
	"query": {args: 1, run: withNumber(runQuery)},
	"copy":  {args: 2, run: runCopy},
	"power": {args: 1, run: withNumber(func(_ context.Context, p *Process, i int, mw uint64) (string, error) {
		return "", p.SetPower(i, float64(mw)/1e3)
	})},

	"state": {args: 0, process: true, run: func(_ context.Context, p *Process, pid int, _ []string) (string, error) {
		state, err := p.gpu.CheckpointState(pid)
		return strconv.Itoa(int(state)), err
	}},
	"lock": {args: 1, process: true, run: withNumber(func(ctx context.Context, p *Process, pid int, ms uint64) (string, error) {
		return "", p.gpu.Lock(ctx, pid, time.Duration(ms)*time.Millisecond)
	})},
	"checkpoint": {args: 0, process: true, run: runStep((*GPU).Checkpoint)},
	"restore":    {args: 0, process: true, run: runStep((*GPU).Restore)},
	"unlock":     {args: 0, process: true, run: runStep((*GPU).Unlock)},
}

func runStep(f func(*GPU, context.Context, int) error) func(context.Context, *Process, int, []string) (string, error) {
	return func(ctx context.Context, p *Process, pid int, _ []string) (string, error) {
		return "", f(p.gpu, ctx, pid)
	}
}

func runAlloc(_ context.Context, p *Process, i int, bytes uint64) (string, error) {
	return number(p.Alloc(i, bytes))
}

func runMemory(_ context.Context, p *Process, i int, _ []string) (string, error) {
	free, total, err := p.Memory(i)
	return fmt.Sprint(free, " ", total), err
}

func runLaunch(_ context.Context, p *Process, i int, args []string) (string, error) {
	flops, err := strconv.ParseFloat(args[0], 64)
	if err != nil {
		return "", fmt.Errorf("%w: %.20q is not a number", errProtocol, args[0])
	}
	return number(p.Launch(i, flops))
}

func runQuery(_ context.Context, p *Process, i int, n uint64) (string, error) {
	ended, err := p.Query(i, n)
	if ended {
		return "1", err
	}
	return "0", err
}

func runCopy(ctx context.Context, p *Process, i int, args []string) (string, error) {
	dir, ok := map[string]Direction{"in": In, "out": Out}[args[0]]
	if !ok {
		return "", fmt.Errorf("%w: a copy goes in or out, not %.20q", errProtocol, args[0])
	}
	return withNumber(func(ctx context.Context, p *Process, i int, bytes uint64) (string, error) {
		return "", p.Copy(ctx, i, dir, bytes)
	})(ctx, p, i, args[1:])
}

func withNumber(f func(context.Context, *Process, int, uint64) (string, error)) func(context.Context, *Process, int, []string) (string, error) {
	return func(ctx context.Context, p *Process, i int, args []string) (string, error) {
		n, err := strconv.ParseUint(args[0], 10, 63)
		if err != nil {
			return "", fmt.Errorf("%w: %.20q is not a number", errProtocol, args[0])
		}
		return f(ctx, p, i, n)
	}
}

func runOpen(ctx context.Context, p *Process, i int, _ []string) (string, error) {
	if more, err := p.openPiece(ctx, i); err != nil || !more {
		return "", err
	}
	return "more", nil
}

func number(n uint64, err error) (string, error) { return strconv.FormatUint(n, 10), err }

// describe answers "device".
func (g *GPU) describe(i int) (string, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	u, err := g.unitAt(i)
	if err != nil {
		return "", err
	}
	piece := func(rate float64) uint64 { return max(uint64(rate*pieceTime.Seconds()), 1) }
	return fmt.Sprintf("%s %d %d %d %s", u.info.UUID, u.info.MemoryTotal,
		piece(u.speed.CopyIn), piece(u.speed.CopyOut), u.info.Name), nil
}
