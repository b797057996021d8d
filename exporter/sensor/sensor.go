// Package sensor tells when GPU work starts and ends, as exactly as the machine
// allows, with nothing asked of the tenant.
//
// Exits (pidfd) says when a process ended. Starts (uprobes on libcuda, or
// fanotify on the file) says when a process first used CUDA. Where neither can
// be had the tracker falls back to polling the device.
package sensor

import (
	"context"
	"errors"
	"time"

	"github.com/laxity/laxity/exporter/task"
)

// ErrGone means that the process has exited (a zombie counts as exited).
var ErrGone = errors.New("process is gone")

// ErrUnsupported means that this machine cannot run the sensor; the wrapped
// text says why and what would help. It is a state, not a bug.
var ErrUnsupported = errors.New("sensor not supported here")

// Kind is what a process did.
type Kind string

// What a process did, in the order of a task's life.
const (
	LibraryOpened Kind = "library"  // it opened the libcuda file
	Init          Kind = "init"     // it called cuInit
	ContextMade   Kind = "context"  // it called a function that creates or retains a context
	Launched      Kind = "launch"   // first kernel launch after idle (busy tracking only)
	WorkDone      Kind = "workdone" // a synchronising call returned (busy tracking only)
	Leaving       Kind = "leaving"  // it begins to destroy or release a context
	Left          Kind = "left"     // it is through with that: if the device lists it no more, it ended here
	Exiting       Kind = "exiting"  // its last thread begins to exit; an Exit follows once the driver has let go
)

// Event is one thing that one process did.
type Event struct {
	PID        int // host PID of the process (thread group)
	Kind       Kind
	Time       time.Time
	Source     task.Source
	ErrorBound time.Duration // the event happened in [Time − ErrorBound, Time]
	// Started is when the process began, since boot; 0 where the sensor cannot tell.
	Started time.Duration
	// Container is the id of the container that the process was in, for who reads
	// the event when the process has ended. Empty for one of the host, for kinds that
	// tell of no start (Init and ContextMade do), and where the sensor cannot tell.
	Container string
}

// Starts reports CUDA activity of processes.
type Starts interface {
	// Run sends events until ctx ends. It MUST return an error that wraps
	// ErrUnsupported, before sending anything, where it cannot work.
	Run(ctx context.Context, events chan<- Event) error
}

// Lossy is a Starts whose events may find no room, when nobody takes them in time.
type Lossy interface {
	// Lost is how often that was since it began, at least. It may be called at any time.
	Lost() uint64
}

// Finder is a Starts that looks for copies of libcuda where a container has them.
// Files of the host that are mounted into containers need no call.
type Finder interface {
	// Discover looks for libcuda in the root, the mounts and the memory map of
	// this process (a container's first one), and watches what it finds from its
	// return on. Call it when a container starts. No file is no error.
	Discover(pid int) error
	// Loaded does so for what this process has loaded only. Call it for one that uses
	// CUDA and sent no event: it may not be its container's first one, which knows
	// nothing of its files. It is cheap where they are watched already.
	Loaded(pid int) error
	// Release lets go of what only this process needed. Call it when the
	// container dies: a file that is watched keeps its file system alive.
	Release(pid int)
}

// BusyTracker is a Starts that can follow the GPU work of single processes:
// Launched at the first launch after idle, and WorkDone when a synchronising
// call returned and nothing had been launched since that call began. Processes
// that are not tracked pay nothing.
//
// Events of several threads are not in order: order them by Time. A Launched
// while busy, and a WorkDone while idle, may come; the latter moves the end of
// the work: the call had really waited for the GPU. A WorkDone may come as late as
// it takes to find out that a process is idle, some time after the gap that ends a
// busy interval; its Time is that of the return all the same.
type BusyTracker interface {
	// Track begins with the process that has this PID now. It MUST have loaded
	// libcuda (an Init event came). Tracking a process twice is once.
	Track(pid int) error
	// Untrack ends it, also for a process that has exited.
	Untrack(pid int)
}

// Knower is a Starts that tells of Exiting: for the processes of which it told a start,
// and for those that it is told of here.
type Knower interface {
	// Know names the process that has this PID now, whose start was not told: it was
	// before this sensor ran. If it has ended meanwhile, the Exiting of a later process
	// with this PID may come; Event.Started tells them apart.
	Know(pid int) error
}

// Process is a process that is being watched. It is identified by a pidfd, so
// it is never confused with a later process that got the same PID.
type Process struct {
	PID int
	// Identity is unique among all processes of all boots of this host: boot id,
	// PID and a start mark that a reused PID cannot share.
	Identity string
}

// Exit is the end of a watched process.
type Exit struct {
	Process    Process
	Time       time.Time
	ErrorBound time.Duration
}

// Exits watches processes for their end.
type Exits interface {
	// Watch begins to watch the process that has this PID now. What the caller
	// reads of /proc/PID before Watch returns may belong to another process;
	// what it reads after Watch, followed by a true Alive, belongs to this one.
	// It returns ErrGone when there is no such process. Watching one process
	// twice is one watch.
	Watch(pid int) (Process, error)
	// Gone names a process that had exited before it could be watched, by what told
	// of it: its PID, and when it began, since boot. Nothing is watched.
	Gone(pid int, started time.Duration) Process
	// Alive reports whether the process has not exited.
	Alive(p Process) bool
	// Forget ends the watch; no Exit follows.
	Forget(p Process)
	// Exits is where ends are sent, each once.
	Exits() <-chan Exit
}
