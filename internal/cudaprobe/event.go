package cudaprobe

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/internal/cudabpf"
)

// Kind is what a process did.
type Kind uint32

// What a process did, as the programs report it.
const (
	InitCalled    = Kind(cudabpf.StartsEventKindINIT_CALLED)    // cuInit, for the first time
	ContextCalled = Kind(cudabpf.StartsEventKindCONTEXT_CALLED) // creates or retains a context, for the first time
	Launched      = Kind(cudabpf.StartsEventKindLAUNCHED)       // launches, while nothing else was at work
	Done          = Kind(cudabpf.StartsEventKindDONE)           // a synchronising call returned, and nothing is at work
	Leaving       = Kind(cudabpf.StartsEventKindLEAVING)        // begins to destroy or release a context
	Left          = Kind(cudabpf.StartsEventKindLEFT)           // that has returned
	Exiting       = Kind(cudabpf.StartsEventKindEXITING)        // the last thread of a known process begins to exit, see Probe.Know

	launchedFast = Kind(cudabpf.StartsEventKindLAUNCHED_FAST) // reported as Launched
)

// TrapBound is how long the kernel may take from the breakpoint at the function to our reading of
// the clock: 1–2 µs, more if an interrupt falls in between.
const TrapBound = 50 * time.Microsecond

// Event is one thing that one process did.
type Event struct {
	// PID and TID are in the host's PID namespace. TID is 0 for a Done that was not seen when it
	// happened, see Probe.Track.
	PID, TID int
	Kind     Kind
	// Time is that of the call, or, for Done and Left, of its return. The true time is in [Time −
	// ErrorBound, Time].
	Time       time.Time
	ErrorBound time.Duration
	// Start is the process's start time since boot, and Execs how often it had called exec. Both are
	// 0 for Launched and Done.
	Start time.Duration
	Execs uint32
	// Cgroup, for InitCalled and ContextCalled, is the path of the thread's control group: only
	// names of 64 bytes or more, the outermost three. A container's name is among them. Empty if
	// there are none, or if it is unknown.
	Cgroup string

	at       time.Duration // the same as Time, of CLOCK_MONOTONIC
	returned time.Duration // of Launched, as at: see cudabpf's event.h
}

// decode reads what a program has written: an event, followed by the names of control groups if the
// program knows them.
func decode(raw []byte, clocks func() clockPair) (Event, error) {
	var e cudabpf.StartsEvent
	n, err := binary.Decode(raw, binary.NativeEndian, &e)
	if err != nil {
		return Event{}, fmt.Errorf("event of %d bytes: %w", len(raw), err)
	}
	var g cudabpf.StartsGroups
	if len(raw) >= n+binary.Size(g) {
		if _, err := binary.Decode(raw[n:], binary.NativeEndian, &g); err != nil {
			return Event{}, fmt.Errorf("control groups of an event: %w", err)
		}
	}
	at, bound := clocks().wall(e.Time)
	return Event{
		Time: at, ErrorBound: bound + TrapBound,
		Start: time.Duration(e.Start),
		PID:   int(e.Pid), TID: int(e.Tid), Kind: Kind(e.Kind), Execs: e.Exec,
		Cgroup: path(g),
		at:     time.Duration(e.Time), returned: time.Duration(e.Returned),
	}, nil
}

// path joins the names of control groups, the outermost first. If there was no room for a name, the
// path is empty: the missing part may be the id.
func path(g cudabpf.StartsGroups) string {
	const slots = uint32(len(g.Names))
	var all strings.Builder
	for n := g.Count; n > 0 && g.Count-n < slots-1; n-- { // the outermost was written last
		slot := g.Names[(n-1)%slots]
		name, _, _ := bytes.Cut(slot[:], []byte{0})
		if len(name) >= len(slot)-1 {
			return ""
		}
		all.WriteByte('/')
		all.Write(name)
	}
	return all.String()
}

// clockPair is the wall clock, read between two readings of the clock that BPF
// uses (CLOCK_MONOTONIC), nanoseconds.
type clockPair struct{ before, real, after int64 }

// readClocks is called for each event: so the wall clock may be set or slewed at any time, and the
// times of events follow within microseconds.
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

// monotonic reads the clock of the programs.
func monotonic() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // every Linux has it
	return time.Duration(now.Nano())
}

// wall converts a time of the kernel's clock into wall clock time: the latest possible time, and by
// how much it may have been earlier. The result has a reading of Go's monotonic clock, so that its
// age stays right when the wall clock is set.
func (c clockPair) wall(monotonic uint64) (time.Time, time.Duration) {
	now := time.Now()
	return now.Add(time.Unix(0, c.real-c.before+int64(monotonic)).Sub(now)), time.Duration(c.after - c.before)
}
