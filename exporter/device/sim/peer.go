package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// peer is the process at the other end of a unix socket, as the kernel saw it
// connect.
type peer struct {
	PID   int // in this program's PID namespace
	uid   uint32
	start uint64 // clock ticks since boot
	pidfd *os.File
}

func peerOf(conn net.Conn) (*peer, error) {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return nil, errors.New("not a socket")
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return nil, err
	}
	if credErr != nil {
		return nil, fmt.Errorf("who is connected: %w", credErr)
	}
	if cred.Pid <= 0 {
		return nil, errors.New("the peer is in a PID namespace that cannot be seen from here; serve in the host's")
	}
	fd, err := unix.PidfdOpen(int(cred.Pid), unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("pidfd of %d: %w", cred.Pid, err)
	}
	p := &peer{PID: int(cred.Pid), uid: cred.Uid, pidfd: os.NewFile(uintptr(fd), "pidfd")}
	p.start, err = startOf(p.PID)
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// EnvMPS makes a program that has it, set to 1, in its environment a client of an MPS server, see Process.UseMPS. There is
// no server that computes for it.
const EnvMPS = "LAXITY_SIM_MPS"

// asksFor reports whether the program was started with this variable set to 1.
func (p *peer) asksFor(variable string) bool {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.PID))
	return err == nil && slices.Contains(strings.Split(string(env), "\x00"), variable+"=1")
}

// startOf reads when a process started.
func startOf(pid int) (uint64, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // the name may hold anything
	if len(fields) < 20 {
		return 0, fmt.Errorf("when process %d started is not in its stat", pid)
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

// Wait returns nil once the process has ended (a zombie has), or ctx's error.
func (p *peer) Wait(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { _ = p.pidfd.SetReadDeadline(time.Unix(1, 0)) })()
	raw, err := p.pidfd.SyscallConn()
	if err != nil {
		return err
	}
	// Read parks the goroutine in the runtime's poller until the pidfd is
	// readable, which it is from the exit on.
	err = raw.Read(readable)
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// ended reports whether the process has ended (a zombie has).
func (p *peer) ended() (ended bool) {
	if raw, err := p.pidfd.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { ended = readable(fd) })
	}
	return ended
}

// readable reports whether a pidfd can be read.
func readable(fd uintptr) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return err == nil && n > 0
}

func (p *peer) Close() error { return p.pidfd.Close() }
