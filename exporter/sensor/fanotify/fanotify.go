// Package fanotify is sensor.Starts by the kernel's notification of file opens: it reports
// when a process opens libcuda, which is its first step to the GPU. It is for machines that
// allow no uprobes. It reports less than they do: some programs load the library and never
// use it, and it does not see what a process does with the library. It needs CAP_SYS_ADMIN,
// Linux 5.1 and nothing else.
//
// It imports exporter/sensor, exporter/sensor/libraries, exporter/task,
// internal/cudaprobe/cudafile, golang.org/x/sys and the standard library.
package fanotify

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/sensor/libraries"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/cudaprobe/cudafile"
)

const (
	defaultRescan = 30 * time.Second
	// WakeBound is how long the kernel and the Go runtime may take from the open until we
	// read the clock. The event has no time of its own.
	WakeBound = 5 * time.Millisecond
)

// Options change how the sensor works; the zero value is right.
type Options struct {
	// Proc is where the host's proc file system is mounted. Empty: /proc.
	Proc string
	// Rescan is how often the host and known containers are searched again for
	// the driver. 0: every 30 s.
	Rescan time.Duration
	// Log gets a line when a file cannot be watched. Nil: nothing.
	Log *slog.Logger
}

// Sensor reports which processes open the CUDA driver.
type Sensor struct {
	queue     *os.File
	marks     *marks
	libraries *libraries.Registry
	rescan    time.Duration
	log       *slog.Logger
	lost      atomic.Uint64
}

var (
	_ sensor.Starts = (*Sensor)(nil)
	_ sensor.Finder = (*Sensor)(nil)
	_ sensor.Lossy  = (*Sensor)(nil)
)

// New begins to watch the host's CUDA driver, if there is one. From then on it keeps events
// for Run. The error wraps sensor.ErrUnsupported where the kernel refuses.
func New(o Options) (*Sensor, error) {
	queue, err := open()
	if err != nil {
		return nil, err
	}
	s := &Sensor{queue: queue, marks: &marks{queue: queue, files: map[cudafile.ID]*os.File{}}, rescan: o.Rescan, log: o.Log}
	if s.rescan <= 0 {
		s.rescan = defaultRescan
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.libraries = libraries.New(o.Proc, s.marks)
	if err := s.libraries.DiscoverHost(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Supported returns nil where this machine can run the sensor, otherwise an error that wraps
// sensor.ErrUnsupported and gives the reason.
func Supported() error {
	queue, err := open()
	if err != nil {
		return err
	}
	return queue.Close()
}

func open() (*os.File, error) {
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_NOTIF|unix.FAN_CLOEXEC|unix.FAN_NONBLOCK, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_LARGEFILE)
	switch {
	case err == nil:
		return os.NewFile(uintptr(fd), "fanotify"), nil
	case errors.Is(err, unix.EPERM):
		return nil, fmt.Errorf("%w: fanotify_init: %w (run as root with CAP_SYS_ADMIN)", sensor.ErrUnsupported, err)
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EINVAL):
		return nil, fmt.Errorf("%w: fanotify_init: %w (the kernel is too old, or built without CONFIG_FANOTIFY)", sensor.ErrUnsupported, err)
	default:
		return nil, fmt.Errorf("fanotify_init: %w", err)
	}
}

// Run implements sensor.Starts. Call it once: when it returns, nothing is watched any more.
func (s *Sensor) Run(ctx context.Context, events chan<- sensor.Event) error {
	ctx, cancel := context.WithCancel(ctx)
	var helpers sync.WaitGroup
	helpers.Go(func() { s.libraries.Keep(ctx, s.rescan, s.log) })
	helpers.Go(func() {
		<-ctx.Done()
		_ = s.queue.SetReadDeadline(time.Now()) // ends the read below
	})
	defer func() {
		cancel()
		helpers.Wait()
		if err := s.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			s.log.Warn("fanotify was not given back cleanly", "err", err)
		}
	}()
	return s.read(ctx, events)
}

func (s *Sensor) read(ctx context.Context, events chan<- sensor.Event) error {
	buffer := make([]byte, 4096)
	emptyAt := time.Now() // the queue was empty
	for {
		begin := time.Now()
		n, err := s.queue.Read(buffer)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("fanotify sensor: %w", err)
		}
		now := time.Now()
		for _, pid := range s.parse(buffer[:n]) {
			e := sensor.Event{
				PID: pid, Kind: sensor.LibraryOpened, Time: now,
				Source: task.SourceFanotify, ErrorBound: WakeBound + begin.Sub(emptyAt),
			}
			select {
			case events <- e:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if n < len(buffer)/2 { // otherwise more events may have waited
			emptyAt = now
		}
	}
}

// parse returns the PIDs of the processes that opened a file, without our own.
func (s *Sensor) parse(data []byte) []int {
	const (
		size              = 24 // of struct fanotify_event_metadata
		atVersion, atMask = 4, 8
		atFile, atPID     = 16, 20
	)
	var pids []int
	order := binary.NativeEndian
	for len(data) >= size {
		length := int(order.Uint32(data))
		if length < size || length > len(data) || data[atVersion] != unix.FANOTIFY_METADATA_VERSION {
			break // another kernel's format: only this field shows it
		}
		if fd := int32(order.Uint32(data[atFile:])); fd >= 0 {
			_ = unix.Close(int(fd))
		}
		pid := int(int32(order.Uint32(data[atPID:])))
		switch {
		case order.Uint64(data[atMask:])&unix.FAN_Q_OVERFLOW != 0:
			s.lost.Add(1)
		case pid > 0 && pid != os.Getpid():
			pids = append(pids, pid)
		}
		data = data[length:]
	}
	return pids
}

// Close ends the sensor, whether Run was called or not.
func (s *Sensor) Close() error { return errors.Join(s.marks.Close(), s.queue.Close()) }

// Discover implements sensor.Finder.
func (s *Sensor) Discover(pid int) error { return s.libraries.Discover(pid) }

// Loaded implements sensor.Finder.
func (s *Sensor) Loaded(pid int) error { return s.libraries.Loaded(pid) }

// Release implements sensor.Finder.
func (s *Sensor) Release(pid int) { s.libraries.Release(pid) }

// Lost implements sensor.Lossy: it counts how often the kernel's queue was full.
func (s *Sensor) Lost() uint64 { return s.lost.Load() }

// Stats describes the sensor's work.
type Stats struct {
	Libraries []string // the files that are watched, as their roots name them
}

// Stats returns the present state.
func (s *Sensor) Stats() Stats { return Stats{Libraries: s.libraries.Paths()} }
