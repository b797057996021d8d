// Package listener tells who listens on a port of this machine: while a service is down, any user may
// take its port, be told its secrets and answer in its place.
//
// It is a leaf. It imports the standard library only.
package listener

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Users returns the users who listen on a TCP port of this machine, as the kernel's tables of this network
// namespace have them; none if nobody does. The error wraps fs.ErrNotExist where there are no tables.
func Users(port int) ([]int, error) {
	var all []int
	read := 0
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(table)
		switch {
		case err == nil:
			read++
			all = append(all, usersOn(string(text), port)...)
		case !errors.Is(err, fs.ErrNotExist): // there is no tcp6 without IPv6
			return nil, err
		}
	}
	if read == 0 {
		return nil, fmt.Errorf("who listens here is not known: %w", fs.ErrNotExist)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// usersOn returns the users who listen on a port, from /proc/net/tcp or tcp6 (proc_net_tcp.rst of the kernel's
// documentation).
func usersOn(table string, port int) (uids []int) {
	const local, state, user = 1, 3, 7 // fields of a line
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) <= user || f[state] != "0A" { // TCP_LISTEN
			continue
		}
		_, hex, _ := strings.Cut(f[local], ":")
		uid, err := strconv.Atoi(f[user])
		if p, perr := strconv.ParseUint(hex, 16, 16); perr == nil && err == nil && int(p) == port {
			uids = append(uids, uid)
		}
	}
	return uids
}

// StrangerError means that somebody else listens on a port of this machine.
type StrangerError struct {
	Port  int
	Users []int // who does; none: nobody does any more
}

func (e *StrangerError) Error() string {
	return fmt.Sprintf("port %d of this machine is held by user %s, not by root: what is there is not believed, and is sent no token", e.Port, strings.Trim(fmt.Sprint(e.Users), "[]"))
}

// OfRoot connects as a net.Dialer does, but to a port of this machine only while root listens there, or the
// user of this process, and nobody else: else the error is a StrangerError. Where who listens is not known, as
// in a sandbox without the kernel's tables, it connects.
func OfRoot(ctx context.Context, network, address string) (net.Conn, error) {
	return dial(ctx, network, address, 0, os.Geteuid())
}

func dial(ctx context.Context, network, address string, believed ...int) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	// Whoever listens now had the port when the connection was made: nobody else can take it meanwhile
	// but in the moment in which it is free.
	if err := believe(conn, believed); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// believe returns a StrangerError if the other end is on this machine, and not one of the believed users'.
func believe(conn net.Conn, believed []int) error {
	remote, ok := conn.RemoteAddr().(*net.TCPAddr)
	local, is := conn.LocalAddr().(*net.TCPAddr)
	if !ok || !is || !remote.IP.IsLoopback() && !remote.IP.Equal(local.IP) {
		return nil
	}
	users, err := Users(remote.Port)
	if err != nil {
		return nil //nolint:nilerr // it is not known
	}
	if len(users) == 0 || slices.ContainsFunc(users, func(uid int) bool { return !slices.Contains(believed, uid) }) {
		return &StrangerError{remote.Port, users}
	}
	return nil
}
