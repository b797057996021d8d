// Package sensor reports when GPU work starts and ends, as exactly as the machine allows. It
// asks nothing of the tenant.
//
// Exits (pidfd) reports when a process ended. Starts (uprobes on libcuda, or fanotify on the
// file) reports when a process first used CUDA. Where no Starts works, the tracker polls the
// device.
package sensor

import (
	"context"
	"errors"
	"time"

	"github.com/laxity/laxity/exporter/task"
)

// ErrGone means that the process has exited (a zombie counts as exited).
var ErrGone = errors.New("process is gone")

// ErrUnsupported means that this machine cannot run the sensor. The wrapped text says why and
// what would help. It is a property of the machine, not a bug.
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
	Left          Kind = "left"     // that call has returned: if the device no longer lists the process, its task ended here
	Exiting       Kind = "exiting"  // its last thread begins to exit; an Exit follows once the driver has freed what it held
)

// Event is one thing that one process did.
type Event struct {
	PID        int // host PID of the process (thread group)
	Kind       Kind
	Time       time.Time
	Source     task.Source
	ErrorBound time.Duration // the event happened in [Time − ErrorBound, Time]
	// Started is when the process began, since boot; 0 where the sensor does not know.
	Started time.Duration
	// Container is the id of the process's container, for a reader who gets the event after
	// the process has ended. It is empty for a process of the host, for kinds that report no
	// start (Init and ContextMade do), and where the sensor does not know it.
	Container string
}

// Starts reports CUDA activity of processes.
type Starts interface {
	// Run sends events until ctx ends. It MUST return an error that wraps
	// ErrUnsupported, before sending anything, where it cannot work.
	Run(ctx context.Context, events chan<- Event) error
}

// Lossy is a Starts that drops events for which it has no room, when nobody takes them in
// time.
type Lossy interface {
	// Lost returns the least number of events that it dropped since it began. It may be
	// called at any time.
	Lost() uint64
}

// Finder is a Starts that finds the copies of libcuda in containers. Files of the host that
// are mounted into containers need no call.
type Finder interface {
	// Discover searches the root, the mounts and the memory map of this process (a
	// container's first one) for libcuda. When it returns, it watches what it found. Call it
	// when a container starts. Finding no file is no error.
	Discover(pid int) error
	// Loaded does the same for the files that this process has loaded, and no others. Call it
	// for a process that uses CUDA and sent no event: the container's first process may not
	// show this one's files. It is cheap where they are watched already.
	Loaded(pid int) error
	// Release stops watching what only this process needed. Call it when the container dies:
	// a watched file keeps its file system alive.
	Release(pid int)
}

// BusyTracker is a Starts that can follow the GPU work of single processes. It sends Launched
// at the first launch after idle, and WorkDone when a synchronising call returned and nothing
// had been launched since that call began. A process that is not tracked pays nothing.
//
// Events of several threads are not in order: order them by Time. A Launched may come while
// the process is busy. A WorkDone may come while it is idle: it moves the end of the work,
// because the call had really waited for the GPU. A WorkDone may come some time after the gap
// that ends a busy interval, as it takes that long to find out that a process is idle. Its
// Time is still that of the return.
type BusyTracker interface {
	// Track begins to follow the process that has this PID now. The process MUST have loaded
	// libcuda (an Init event came). Track is idempotent.
	Track(pid int) error
	// Untrack stops following the process. The process may have exited.
	Untrack(pid int)
}

// Knower is a Starts that reports Exiting: for the processes whose start it reported, and for
// those named by Know.
type Knower interface {
	// Know names the process that has this PID now and started before this sensor ran. If
	// that process has ended by then, the Exiting of a later process with this PID may come.
	// Event.Started differs between the two.
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

// Exits reports the ends of the processes that it watches.
type Exits interface {
	// Watch begins to watch the process that has this PID now. What the caller reads of
	// /proc/PID before Watch returns may belong to another process; what it reads after
	// Watch, followed by a true Alive, belongs to this one. It returns ErrGone when there is
	// no such process. Watching one process twice makes one watch.
	Watch(pid int) (Process, error)
	// Gone returns the Process for one that had exited before it could be watched: pid is its
	// PID, started is when it began, since boot. Gone watches nothing.
	Gone(pid int, started time.Duration) Process
	// Alive reports whether the process has not exited.
	Alive(p Process) bool
	// Forget ends the watch; no Exit follows.
	Forget(p Process)
	// Exits is where ends are sent, each once.
	Exits() <-chan Exit
}
