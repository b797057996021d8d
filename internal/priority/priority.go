// Package priority shares a machine's cores between a daemon and busy tenants. A daemon that
// watches a node has little to do, but must answer while all cores compute: so it goes first, and
// uses few of them.
package priority

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// ErrNotPermitted means that this process may not raise its priority: that takes CAP_SYS_NICE, or a
// limit on nice values (RLIMIT_NICE) that is low enough.
var ErrNotPermitted = errors.New("not permitted (needs CAP_SYS_NICE)")

// Go starts threads at any time, and each inherits the priority of its starter. One is listed only a moment after it
// has inherited that: so Raise looks again after it has found nobody to raise.
const (
	passes = 100 // bounds how often Raise looks
	quiet  = 3   // how many passes in a row must find nobody
	moment = 5 * time.Millisecond
)

// Raise gives every thread of this process this nice value (−20 to 19, the lowest goes first),
// unless its own is lower already; new threads inherit it. The error wraps ErrNotPermitted if that
// is not allowed.
//
// The scheduler weighs threads of one group against each other, and groups of one level likewise.
// In a cgroup with the cpu controller (a container, a systemd unit with CPUWeight) only the group's
// weight counts against tenants. Where the kernel makes groups of sessions (autogroup), a session's
// leader raises that group, too.
func Raise(nice int) error {
	still := 0 // passes in a row that found nobody
	for range passes {
		changed, err := raiseThreads(nice)
		if err != nil {
			return err
		}
		if changed {
			still = 0
			continue
		}
		if still++; still == quiet {
			return raiseSession(nice)
		}
		time.Sleep(moment)
	}
	return errors.New("new threads appear faster than their priority can be raised")
}

// raiseThreads reports whether there was a thread whose nice value was higher.
func raiseThreads(nice int) (changed bool, err error) {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return false, err
	}
	for _, t := range threads {
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			return false, fmt.Errorf("/proc/self/task: %w", err)
		}
		switch is, err := of(id); {
		case errors.Is(err, unix.ESRCH), err == nil && is <= nice:
			continue
		case err != nil:
			return false, fmt.Errorf("priority of thread %d: %w", id, err)
		}
		switch err := unix.Setpriority(unix.PRIO_PROCESS, id, nice); {
		case errors.Is(err, unix.ESRCH):
		case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
			return false, ErrNotPermitted
		case err != nil:
			return false, fmt.Errorf("priority of thread %d: %w", id, err)
		}
		changed = true
	}
	return changed, nil
}

// of returns the nice value of a thread.
func of(thread int) (int, error) {
	raw, err := unix.Getpriority(unix.PRIO_PROCESS, thread)
	return 20 - raw, err // the kernel's encoding, which keeps it apart from an error
}

// raiseSession raises the session's group, if it exists and is ours.
func raiseSession(nice int) error {
	leader, err := unix.Getsid(0)
	if err != nil || leader != os.Getpid() {
		return err
	}
	err = os.WriteFile("/proc/self/autogroup", []byte(strconv.Itoa(nice)), 0)
	// The kernel has no such groups, /proc is read-only, or somebody else set the threads' priority
	// and is responsible for the group.
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EROFS) || errors.Is(err, unix.EPERM) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("priority of the session: %w", err)
	}
	return nil
}
