package channels

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/laxity/laxity/actuator/enforce/proc"
	"github.com/laxity/laxity/internal/rm"
)

// State is what a process does now.
type State int

// The states of a process.
const (
	Lives   State = iota
	Traced        // it lives, and a debugger, or what else uses ptrace, is attached
	Exiting       // it is about to end: the driver tears its channels down
	Gone          // it has ended, or its PID belongs to another one
)

// StateOf reads the state from the proc file system.
func StateOf(p rm.Process) (State, error) {
	const folder = "/proc"
	stat, ok := proc.ReadStat(folder, p.PID)
	switch {
	case ok && stat.Start != p.Start:
		return Gone, nil
	case !ok:
		if _, err := os.Stat(filepath.Join(folder, strconv.Itoa(p.PID))); errors.Is(err, os.ErrNotExist) {
			return Gone, nil
		}
		// It may have ended in between; the next call will say so.
		return Lives, fmt.Errorf("read when process %d started", p.PID)
	case stat.Exiting:
		return exiting(folder, p.PID), nil
	}
	status, err := os.ReadFile(filepath.Join(folder, strconv.Itoa(p.PID), "status"))
	if err == nil {
		for line := range strings.Lines(string(status)) {
			if tracer, ok := strings.CutPrefix(line, "TracerPid:"); ok && strings.TrimSpace(tracer) != "0" {
				return Traced, nil
			}
		}
	}
	return Lives, nil
}

// exiting returns the state of a process whose first thread exits: it lives while another thread
// does not exit.
func exiting(folder string, pid int) State {
	tasks := filepath.Join(folder, strconv.Itoa(pid), "task")
	threads, err := os.ReadDir(tasks)
	if err != nil {
		return Gone
	}
	state := Gone // a zombie without other threads holds nothing any more
	for _, t := range threads {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		switch stat, ok := proc.ReadStat(tasks, tid); {
		case ok && !stat.Exiting:
			return Lives
		case ok && stat.State != 'Z' && stat.State != 'X':
			state = Exiting
		}
	}
	return state
}
