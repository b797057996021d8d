package tracker_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/exporter/tracker"
	"github.com/laxity/laxity/exporter/tracker/core"
)

// host plays the kernel: processes, their containers and their ends. It is
// Processes and sensor.Exits.
type host struct {
	mu         sync.Mutex
	containers map[int]string // container of each PID; "" for a host process
	states     map[int]byte
	servers    map[int]bool // of MPS
	exiting    map[int]bool // they begin to exit
	lives      map[int]int  // how often a PID was used
	exits      chan sensor.Exit
	err        error // of Watch
}

func newHost() *host {
	return &host{containers: map[int]string{}, states: map[int]byte{}, exiting: map[int]bool{}, lives: map[int]int{}, exits: make(chan sensor.Exit, 100)}
}

func (h *host) start(pid int, containerID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.containers[pid] = containerID
	h.states[pid] = 'S'
	h.lives[pid]++
}

// refuse makes Watch fail; nil ends that.
func (h *host) refuse(err error) { h.mu.Lock(); defer h.mu.Unlock(); h.err = err }

// started is when the process that has a PID now began.
func (h *host) started(pid int) time.Duration {
	return time.Duration(h.lives[pid]) * time.Hour
}

func (h *host) signal(pid int, state byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.states[pid] = state
}

// beginExit is what the kernel does before exit.
func (h *host) beginExit(pid int) { h.mu.Lock(); defer h.mu.Unlock(); h.exiting[pid] = true }

// reap takes a process away whose end is not told yet.
func (h *host) reap(pid int) { h.mu.Lock(); defer h.mu.Unlock(); delete(h.containers, pid) }

func (h *host) exit(pid int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.containers, pid)
	h.exits <- sensor.Exit{Process: h.process(pid), Time: time.Now(), ErrorBound: time.Millisecond}
}

func (h *host) process(pid int) sensor.Process {
	return sensor.Process{PID: pid, Identity: fmt.Sprintf("boot/%d/%d", pid, h.lives[pid])}
}

func (h *host) Watch(pid int) (sensor.Process, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.containers[pid]; !ok {
		return sensor.Process{}, sensor.ErrGone
	}
	if h.err != nil {
		return sensor.Process{}, h.err
	}
	return h.process(pid), nil
}

func (h *host) Alive(p sensor.Process) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, ok := h.containers[p.PID]
	return ok && h.process(p.PID) == p
}

func (h *host) Gone(pid int, started time.Duration) sensor.Process {
	return sensor.Process{PID: pid, Identity: fmt.Sprintf("boot/%d/%v", pid, started)}
}

func (h *host) Forget(sensor.Process)     {}
func (h *host) Exits() <-chan sensor.Exit { return h.exits }

func (h *host) OfPID(pid int) (string, bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	id, ok := h.containers[pid]
	if !ok {
		return "", false, fs.ErrNotExist
	}
	return id, id != "", nil
}

func (h *host) Stat(pid int) (tracker.Stat, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.containers[pid]; !ok {
		return tracker.Stat{}, fs.ErrNotExist
	}
	return tracker.Stat{State: h.states[pid], Exiting: h.exiting[pid], Started: h.started(pid), MPSServer: h.servers[pid]}, nil
}

// card is a device with one GPU.
type card struct {
	mu    sync.Mutex
	pids  []int
	err   error
	used  uint64
	reads int
}

func (c *card) set(pids ...int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pids = pids
}

func (c *card) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

func (c *card) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reads
}

func (c *card) Read(context.Context) (device.Reading, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads++
	if c.err != nil {
		return device.Reading{}, c.err
	}
	g := device.GPU{UUID: "GPU-a", MemoryTotal: 100, MemoryUsed: c.used}
	for _, pid := range c.pids {
		g.Processes = append(g.Processes, device.Process{PID: pid, MemoryUsed: 1})
	}
	return device.Reading{Time: time.Now(), GPUs: []device.GPU{g}}, nil
}

func (c *card) Close() error { return nil }

// probe is a start sensor that sends what the test tells it to.
type probe struct {
	events chan sensor.Event
	err    chan error
	lost   atomic.Uint64

	mu       sync.Mutex
	tracked  map[int]bool
	known    map[int]bool
	explored []int
	loaded   []int
}

func newProbe() *probe {
	return &probe{events: make(chan sensor.Event), err: make(chan error, 1), tracked: map[int]bool{}, known: map[int]bool{}}
}

func (p *probe) Run(ctx context.Context, out chan<- sensor.Event) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-p.err:
			return err
		case ev := <-p.events:
			out <- ev
		}
	}
}

func (p *probe) Lost() uint64 { return p.lost.Load() }

func (p *probe) sense(pid int, kind sensor.Kind) {
	p.events <- sensor.Event{PID: pid, Kind: kind, Time: time.Now(), Source: task.SourceUprobe, ErrorBound: time.Millisecond}
}

// late sends what happened so long ago to a process that may have ended since: the
// one of this life of the PID, in this container.
func (p *probe) late(ago time.Duration, pid, life int, containerID string, kind sensor.Kind) {
	ev := sensor.Event{PID: pid, Kind: kind, Time: time.Now().Add(-ago), Source: task.SourceUprobe, ErrorBound: time.Millisecond,
		Started: time.Duration(life)*time.Hour + 3*time.Millisecond}
	switch kind {
	case sensor.Init, sensor.ContextMade:
		ev.Container = containerID
	case sensor.Exiting:
		ev.Source = task.SourceTracepoint
	}
	p.events <- ev
}

func (p *probe) Track(pid int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tracked[pid] = true
	return nil
}
func (p *probe) Untrack(pid int)     { p.mu.Lock(); defer p.mu.Unlock(); delete(p.tracked, pid) }
func (p *probe) tracks(pid int) bool { p.mu.Lock(); defer p.mu.Unlock(); return p.tracked[pid] }
func (p *probe) Know(pid int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known[pid] = true
	return nil
}
func (p *probe) knows(pid int) bool { p.mu.Lock(); defer p.mu.Unlock(); return p.known[pid] }
func (p *probe) Release(int)        {}

func (p *probe) Discover(pid int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.explored = append(p.explored, pid)
	return nil
}

func (p *probe) Loaded(pid int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loaded = append(p.loaded, pid)
	return nil
}

// unsupported is a sensor that this machine cannot run.
type unsupported struct{}

func (unsupported) Run(context.Context, chan<- sensor.Event) error {
	return fmt.Errorf("%w: no BPF here", sensor.ErrUnsupported)
}

// memory is a Store.
type memory struct {
	mu    sync.Mutex
	state core.State
	open  map[string]core.Saved
	ended map[string]task.Task
	over  map[string]core.Override
	saves int
	err   error
	gate  chan struct{} // Save waits for it; nil: for nothing
}

func newMemory() *memory {
	return &memory{open: map[string]core.Saved{}, ended: map[string]task.Task{}, over: map[string]core.Override{}}
}

func (m *memory) Load() (core.State, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.state
	for _, o := range m.open {
		s.Open = append(s.Open, o)
	}
	for _, t := range m.ended {
		s.Ended = append(s.Ended, t)
	}
	s.Overrides = m.over
	return s, nil
}

func (m *memory) Save(c core.Changes, alive time.Time) error {
	if m.gate != nil {
		<-m.gate
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return m.err
	}
	m.saves++
	for id, s := range c.Open {
		m.open[id] = s
	}
	for id, t := range c.Ended {
		delete(m.open, id)
		m.ended[id] = t
	}
	for _, id := range c.Dropped {
		delete(m.open, id)
		delete(m.ended, id)
	}
	for id, o := range c.Overrides {
		if o == nil {
			delete(m.over, id)
		} else {
			m.over[id] = *o
		}
	}
	m.state.Alive = alive
	return nil
}

func (m *memory) counts() (open, ended int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.open), len(m.ended)
}

func (m *memory) fail(err error) { m.mu.Lock(); defer m.mu.Unlock(); m.err = err }

var errTrouble = errors.New("trouble")

// always opens the same sensor.
func always(s sensor.Starts) func() (sensor.Starts, error) {
	return func() (sensor.Starts, error) { return s, nil }
}

// paper keeps what is logged.
type paper struct {
	mu   sync.Mutex
	text strings.Builder
}

func (p *paper) Write(line []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(line)
}

// count returns how many lines say something.
func (p *paper) count(what string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Count(p.text.String(), what)
}
