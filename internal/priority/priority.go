// Package priority shares a machine's cores between a daemon and busy tenants: what
// watches a node has little to do, and must answer while all cores compute, so it goes
// first, and uses few of them.
package priority

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrNotPermitted is returned where this process may not raise its priority: that
// takes CAP_SYS_NICE, or a limit on nice values (RLIMIT_NICE) that is low enough.
var ErrNotPermitted = errors.New("not permitted (needs CAP_SYS_NICE)")

// passes bounds how often Raise looks for threads that it has not seen: Go starts
// them whenever it likes, and each has the priority of the one that started it.
const passes = 100

// Raise gives every thread of this process this nice value (−20 to 19, the lowest
// goes first), unless its own is lower already; threads to come inherit it. The
// error wraps ErrNotPermitted where that is so.
//
// The scheduler weighs threads of one group against each other, and groups of one
// level likewise. In a cgroup with the cpu controller (a container, a systemd unit
// with CPUWeight) it is the group's weight that counts beside tenants. A session of
// its own is such a group where the kernel makes them (autogroup): its leader
// raises that too.
func Raise(nice int) error {
	for range passes {
		changed, err := raiseThreads(nice)
		if err != nil {
			return err
		}
		if !changed {
			return raiseSession(nice)
		}
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
	return 20 - raw, err // so the kernel says it, to tell it from an error
}

// raiseSession raises the session's group, if there is one and it is ours.
func raiseSession(nice int) error {
	leader, err := unix.Getsid(0)
	if err != nil || leader != os.Getpid() {
		return err
	}
	err = os.WriteFile("/proc/self/autogroup", []byte(strconv.Itoa(nice)), 0)
	// A kernel without, a /proc that is not to be written, or somebody else gave the
	// threads their priority and will have thought of the group.
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EROFS) || errors.Is(err, unix.EPERM) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("priority of the session: %w", err)
	}
	return nil
}
