package cudaprobe

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"
)

const (
	// attemptWithin is how long an attempt may take. Whoever reads or writes a process's memory waits for
	// ever while another thread of it changes its mappings and hangs, as in mmap of a file on a server that
	// is down. Nothing ends that wait but the end of our own process.
	attemptWithin = time.Second
	// mostLate bounds how many threads of ours wait so.
	mostLate = 16
	// longestNap counts of one between two looks. In a longer one the machine stood, and the thread too. It is
	// no shorter: a quota of CPU time makes our naps long, and not the thread's time to stop.
	longestNap = 100 * time.Millisecond
)

// attempts work on processes that may hang. One given up goes on until what it waits for ends.
type attempts struct {
	mu   sync.Mutex       // nobody waits for a process while holding it
	late map[int]*attempt // by PID: given up, and still under way
}

// attempt is one try to work on a process.
type attempt struct {
	of      *attempts
	givenUp bool
	changed bool // something, so it must not be given up any more
	over    bool
}

var errLate = errors.New("nobody waits for it any more")

// run runs do on a thread of its own, and gives it up after attemptWithin. It refuses a process whose
// last attempt still hangs: each thread of a program that wants to could take a second otherwise.
func (as *attempts) run(pid int, do func(*attempt) error) error {
	if err := as.refuses(pid); err != nil {
		return err
	}
	a, done := &attempt{of: as}, make(chan error, 1)
	go func() {
		// A tracer is a thread. Keep this one locked: when it ends, so does everything that it traces.
		runtime.LockOSThread()
		err := do(a)
		as.end(pid, a)
		done <- err
	}()
	look := time.NewTicker(longestNap / 10)
	defer look.Stop()
	for waited := time.Duration(0); waited < attemptWithin; {
		began := time.Now()
		select {
		case err := <-done:
			return err
		case <-look.C:
			waited += min(time.Since(began), longestNap)
		}
	}
	if as.giveUp(pid, a) {
		return fmt.Errorf("its memory cannot be reached within %v (does it map a file on a server that is down?)", attemptWithin)
	}
	return <-done
}

func (as *attempts) refuses(pid int) error {
	as.mu.Lock()
	defer as.mu.Unlock()
	switch {
	case as.late[pid] != nil:
		return errors.New("its memory could not be reached before, and that still hangs")
	case len(as.late) >= mostLate:
		return fmt.Errorf("the memory of %d other processes cannot be reached", len(as.late))
	}
	return nil
}

// giveUp reports whether the attempt is given up. It is not if it is over, or has changed something.
func (as *attempts) giveUp(pid int, a *attempt) bool {
	as.mu.Lock()
	defer as.mu.Unlock()
	if a.over || a.changed {
		return false
	}
	if as.late == nil {
		as.late = map[int]*attempt{}
	}
	a.givenUp, as.late[pid] = true, a
	return true
}

func (as *attempts) end(pid int, a *attempt) {
	as.mu.Lock()
	defer as.mu.Unlock()
	a.over = true
	if as.late[pid] == a {
		delete(as.late, pid)
	}
}

// unlessLate runs f, which must not hang, unless the attempt was given up. Meanwhile nobody can.
func (a *attempt) unlessLate(f func() error) error {
	a.of.mu.Lock()
	defer a.of.mu.Unlock()
	if a.givenUp {
		return errLate
	}
	return f()
}

// change is unlessLate for what cannot be taken back. From then on the attempt must not hang: run waits
// for its end.
func (a *attempt) change(f func() error) error {
	return a.unlessLate(func() error {
		a.changed = true
		return f()
	})
}
