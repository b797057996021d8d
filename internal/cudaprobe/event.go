package cudaprobe

import (
	"encoding/binary"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Kind is what a process did.
type Kind uint32

// What a process did, as the probes tell it.
const (
	InitCalled    Kind = iota + 1 // cuInit, for the first time
	ContextCalled                 // creates or retains a context, for the first time
	Launched                      // launches, while nothing else was at work
	Done                          // a synchronising call returned, and nothing is at work
	Leaving                       // begins to destroy or release a context
	Left                          // is through with that
	Exiting                       // the last thread of a process that is known begins to exit, see Probe.Know

	fast // launches fast; told as Launched
)

// TrapBound is how long the kernel may take from the breakpoint at the function
// to our looking at the clock: 1–2 µs, more when an interrupt falls in between.
const TrapBound = 50 * time.Microsecond

// Event is one thing that one process did.
type Event struct {
	// PID and TID are in the host's PID namespace. TID is 0 for a Done that nobody
	// saw at its time, see Probe.Track.
	PID, TID int
	Kind     Kind
	// Time is when: at the call for all but Done and Left, there at the return. The
	// truth is in [Time − ErrorBound, Time].
	Time       time.Time
	ErrorBound time.Duration
	// Start is when the process started, since boot, and Execs how often it had
	// called exec. Both are 0 for Launched and Done, and where not known.
	Start time.Duration
	Execs uint32
	// Cgroup is, of InitCalled and ContextCalled, the path of the control group that
	// the thread is in, of which only the names of 64 bytes and more are told, and of
	// those the outermost three: a container's is among them. Empty where there are
	// none, and where that is not known.
	Cgroup string

	at time.Duration // the same as Time, of CLOCK_MONOTONIC
}

// decode reads what a program has written: see the places in program.go.
func decode(raw []byte, clocks func() clockPair) (Event, error) {
	if len(raw) < eventSize {
		return Event{}, fmt.Errorf("event of %d bytes, want %d", len(raw), eventSize)
	}
	order := binary.NativeEndian
	at, bound := clocks().wall(order.Uint64(raw))
	return Event{
		Time: at, ErrorBound: bound + TrapBound,
		Start: time.Duration(order.Uint64(raw[8:])),
		PID:   int(order.Uint32(raw[16:])), TID: int(order.Uint32(raw[20:])),
		Kind: Kind(order.Uint32(raw[24:])), Execs: order.Uint32(raw[28:]),
		Cgroup: groups(raw),
		at:     time.Duration(order.Uint64(raw)),
	}, nil
}

// clockPair is the wall clock, read between two readings of the clock that BPF
// uses (CLOCK_MONOTONIC), nanoseconds.
type clockPair struct{ before, real, after int64 }

// readClocks is called for each event: then the wall clock may be set or slewed
// at any time, and the times of events follow within microseconds.
func readClocks() clockPair {
	best := readOnce()
	for range 3 { // an interruption in between only costs precision
		if best.after-best.before < 5_000 {
			break
		}
		if again := readOnce(); again.after-again.before < best.after-best.before {
			best = again
		}
	}
	return best
}

func readOnce() clockPair {
	var before, wall, after unix.Timespec
	// These calls cannot fail: the clocks exist on every Linux.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &before)
	_ = unix.ClockGettime(unix.CLOCK_REALTIME, &wall)
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &after)
	return clockPair{before.Nano(), wall.Nano(), after.Nano()}
}

// monotonic is the clock that the programs read.
func monotonic() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // every Linux has it
	return time.Duration(now.Nano())
}

// wall turns a time of the kernel's clock into wall clock time: the latest that
// it can have been, and by how much it may have been earlier. It has a reading of Go's
// monotonic clock too, so that its age stays right when the wall clock is set.
func (c clockPair) wall(monotonic uint64) (time.Time, time.Duration) {
	now := time.Now()
	return now.Add(time.Unix(0, c.real-c.before+int64(monotonic)).Sub(now)), time.Duration(c.after - c.before)
}
