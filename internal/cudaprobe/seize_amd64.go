package cudaprobe

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// seizeWithin is how long a thread may take to stop. awaitsWithin is how long it may wait in the
	// kernel for something that only a signal that kills it ends: a program can do so on purpose (vfork),
	// and others wait for their answers meanwhile. Both end before attemptWithin: their error says more.
	seizeWithin  = attemptWithin * 3 / 4
	awaitsWithin = 50 * time.Millisecond
)

// seize runs do while the thread of a call is seized. check runs before that, and again when the
// thread's number cannot become another's; both unless the attempt is late, because the caller's alive is
// not to be called any more then. It needs a thread of its own, whose end ends what it traces.
func (c Call) seize(a *attempt, check, do func() error) error {
	if err := a.unlessLate(check); err != nil {
		return err
	}
	if err := unix.PtraceSeize(c.TID); err != nil {
		return fmt.Errorf("seize (is it being traced?): %w", err)
	}
	if err := a.unlessLate(check); err != nil {
		return err // the end of this thread detaches it
	}
	if err := c.interrupt(); err != nil {
		return err
	}
	return errors.Join(do(), unix.PtraceDetach(c.TID))
}

func (c Call) interrupt() error {
	if err := unix.PtraceInterrupt(c.TID); err != nil {
		return fmt.Errorf("interrupt: %w", err)
	}
	for waited := time.Duration(0); ; {
		var status unix.WaitStatus
		got, err := unix.Wait4(c.TID, &status, unix.WALL|unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("wait: %w", err)
		case got == c.TID && status.Stopped():
			return nil
		case got == c.TID:
			return errors.New("it has ended")
		case waited > seizeWithin, waited > awaitsWithin && awaits(c.TID):
			return errors.New("it does not stop (is its container frozen?)")
		}
		began := time.Now()
		time.Sleep(20 * time.Microsecond)
		waited += min(time.Since(began), longestNap)
	}
}

// awaits reports whether a thread waits in the kernel and no signal wakes it, but one that kills it.
func awaits(tid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", tid))
	_, state, found := strings.Cut(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " ")
	return err == nil && found && strings.HasPrefix(state, "D")
}

// living returns an error if the process that made a call has ended, or its thread has.
func (g *MemoryGuard) living(c Call, alive func() bool) error {
	if !alive() || !isThreadOf(g.proc, c.PID, c.TID) {
		return errors.New("its process has ended")
	}
	return nil
}

// isThreadOf reports whether a thread belongs to a process.
func isThreadOf(proc string, pid, tid int) bool {
	_, err := os.Stat(filepath.Join(proc, strconv.Itoa(pid), "task", strconv.Itoa(tid)))
	return err == nil
}
