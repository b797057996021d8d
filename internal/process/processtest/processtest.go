// Package processtest stops processes in tests.
//
// For tests only. It imports the standard library.
package processtest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// patience is how long a busy machine may take to stop a process.
const patience = 30 * time.Second

// Stop sends SIGSTOP to a process, and returns when all its threads have stopped. The signal alone
// does not wait: while the thread that takes it has no processor, the others run on, and answer.
// (do_signal_stop in the kernel's kernel/signal.c.)
func Stop(t testing.TB, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatalf("stop process %d: %v", pid, err)
	}
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) { // there is nothing to wait on for a process that is no child
		runs, err := running(pid)
		if err != nil {
			t.Fatal(err)
		}
		if len(runs) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("threads %v of process %d have not stopped within %v", runs, pid, patience)
		}
	}
}

// running returns the threads of a process that have not stopped. One that ended while they were
// read is one of them: it may have begun another, which the next reading shows.
func running(pid int) (tids []string, err error) {
	tasks := fmt.Sprintf("/proc/%d/task", pid)
	threads, err := os.ReadDir(tasks)
	if err != nil {
		return nil, err
	}
	for _, thread := range threads {
		status, err := os.ReadFile(filepath.Join(tasks, thread.Name(), "status"))
		if err != nil || !bytes.Contains(status, []byte("\nState:\tT")) {
			tids = append(tids, thread.Name())
		}
	}
	return tids, nil
}
