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

// What a process did, as the programs tell it.
const (
	InitCalled    = Kind(cudabpf.StartsEventKindINIT_CALLED)    // cuInit, for the first time
	ContextCalled = Kind(cudabpf.StartsEventKindCONTEXT_CALLED) // creates or retains a context, for the first time
	Launched      = Kind(cudabpf.StartsEventKindLAUNCHED)       // launches, while nothing else was at work
	Done          = Kind(cudabpf.StartsEventKindDONE)           // a synchronising call returned, and nothing is at work
	Leaving       = Kind(cudabpf.StartsEventKindLEAVING)        // begins to destroy or release a context
	Left          = Kind(cudabpf.StartsEventKindLEFT)           // is through with that
	Exiting       = Kind(cudabpf.StartsEventKindEXITING)        // the last thread of a process that is known begins to exit, see Probe.Know

	launchedFast = Kind(cudabpf.StartsEventKindLAUNCHED_FAST) // told as Launched
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
	// called exec. Both are 0 for Launched and Done.
	Start time.Duration
	Execs uint32
	// Cgroup is, of InitCalled and ContextCalled, the path of the control group that
	// the thread is in, of which only the names of 64 bytes and more are told, and of
	// those the outermost three: a container's is among them. Empty where there are
	// none, and where that is not known.
	Cgroup string

	at       time.Duration // the same as Time, of CLOCK_MONOTONIC
	returned time.Duration // of Launched, as at: see cudabpf's event.h
}

// decode reads what a program has written: an event, and behind it the names of control
// groups where the program knows them.
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

// path is the names of control groups, the outermost first. A name that had no room makes
// it empty: what is cut off may be the id.
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
