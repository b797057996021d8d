package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/laxity/laxity/actuator/enforce"
)

// Options of a Swapper. StateDir, Driver, Memory, Pauser and Processes are required.
type Options struct {
	// StateDir is the actuator's; swaps are on record in Folder(StateDir).
	StateDir string
	Driver   Driver
	Memory   Memory
	// Pauser freezes containers. It must have a journal of its own, PauseJournal, because
	// whatever is in the actuator's own is unpaused as soon as the actuator dies.
	Pauser    enforce.Enforcer
	Processes Processes
	// NoticeDir is where the exporter reads which processes are off the GPU; empty: nothing is written
	// for it.
	NoticeDir string

	// LockTimeout is how long a container's running kernels may take; 10 s by default.
	LockTimeout time.Duration
	// StepTimeout bounds each step; 30 s by default. A step that moves memory gets more time, by MinRate
	// in bytes a second; 100 MB/s by default.
	StepTimeout time.Duration
	MinRate     uint64
	// AnswerTimeout is how long the driver may take to answer what state a process is in, and to give up
	// a lock after LockTimeout; 5 s by default.
	AnswerTimeout time.Duration
	// Settle is how long a lock with unknown outcome may still take effect; 1 s by default.
	Settle time.Duration
	// GPUReserve stays free on each GPU after a restore. HostReserve stays free in the host's memory,
	// and within the container's limit, after a checkpoint. Bytes; 256 MiB and 1 GiB by default.
	GPUReserve, HostReserve uint64
	Logger                  *slog.Logger
	Now                     func() time.Time
}

// Swapper implements enforce.Swapper.
type Swapper struct {
	o       Options
	records records

	// restoring is held from reading a GPU's free memory until the restore has taken it.
	restoring sync.Mutex

	// promising is held from reading the host's free memory until what a suspend will take of it is in
	// promised, by container id: bytes that are not in host memory yet.
	promising sync.Mutex
	promised  map[string]uint64

	mu      sync.Mutex
	busy    map[string]bool    // by container id
	refused map[string]refusal // containers that the driver could not swap
}

// refusal says that the driver could not lock or checkpoint a container. We do not try again while it
// has the same processes.
type refusal struct {
	processes map[int]uint64 // start by PID
	why       error
}

var _ enforce.Swapper = (*Swapper)(nil)

// PauseJournal is the state folder of the journal that the Pauser has to use.
func PauseJournal(stateDir string) string { return Folder(stateDir) }

// New checks the options and fills in the defaults.
func New(o Options) (*Swapper, error) {
	if o.StateDir == "" || o.Driver == nil || o.Memory == nil || o.Pauser == nil || o.Processes == nil {
		return nil, errors.New("checkpoint: StateDir, Driver, Memory, Pauser and Processes are required")
	}
	setDefault(&o.LockTimeout, 10*time.Second)
	setDefault(&o.StepTimeout, 30*time.Second)
	setDefault(&o.AnswerTimeout, 5*time.Second)
	setDefault(&o.Settle, time.Second)
	setDefault(&o.MinRate, 100e6)
	setDefault(&o.GPUReserve, 256<<20)
	setDefault(&o.HostReserve, 1<<30)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	r, err := openRecords(o.StateDir, o.NoticeDir)
	if err != nil {
		return nil, err
	}
	if o.NoticeDir != "" {
		if err := os.MkdirAll(o.NoticeDir, 0o755); err != nil { //nolint:gosec // the exporter may be another user
			return nil, fmt.Errorf("make the folder in which the exporter is told of swaps: %w", err)
		}
	}
	return &Swapper{o: o, records: r, promised: map[string]uint64{}, busy: map[string]bool{}, refused: map[string]refusal{}}, nil
}

func setDefault[T ~int64 | ~uint64](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

// begin makes sure that one call at a time works on a container.
func (s *Swapper) begin(id string) (end func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy[id] {
		return nil, fmt.Errorf("container %.12s: %w", id, enforce.ErrBusy)
	}
	s.busy[id] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.busy, id)
	}, nil
}

// Swapped implements enforce.Swapper.
func (s *Swapper) Swapped() ([]enforce.Swapped, error) {
	records, err := s.records.list()
	if err != nil {
		return nil, err
	}
	all := make([]enforce.Swapped, len(records))
	for i, r := range records {
		all[i] = r.Swapped
	}
	return all, nil
}

// Can implements enforce.Swapper.
func (s *Swapper) Can(ctx context.Context, id string) error {
	end, err := s.begin(id)
	if err != nil {
		return err
	}
	defer end()
	if _, ok, err := s.records.get(id); err != nil || ok {
		return errors.Join(err, cannot("it is swapped already, or was and is stuck"))
	}
	processes, err := s.examine(ctx, id)
	if err != nil {
		return err
	}
	s.promising.Lock()
	defer s.promising.Unlock()
	_, err = s.hostRoom(id, processes)
	return err
}

func cannot(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{enforce.ErrCannotSwap}, args...)...)
}

// examine returns the processes of a container that use CUDA. The error says why the container
// cannot be swapped.
func (s *Swapper) examine(ctx context.Context, id string) ([]Process, error) {
	status, err := s.o.Pauser.Status(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case status.Paused:
		return nil, fmt.Errorf("container %.12s is paused, and a frozen process cannot be locked: %w", id, enforce.ErrForeign)
	}
	gpus, err := s.gpus(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: the GPUs cannot be read: %w", enforce.ErrUnavailable, err)
	}
	processes, err := s.find(ctx, id, gpus, nil)
	switch {
	case err != nil:
		return nil, err
	case len(processes) == 0:
		return nil, cannot("none of its processes uses CUDA")
	}
	if err := s.refusal(id, processes); err != nil {
		return nil, err
	}
	return processes, nil
}

// find returns the container's processes that use CUDA and are not in known. All of them run.
func (s *Swapper) find(ctx context.Context, id string, gpus []GPU, known []Process) ([]Process, error) {
	pids, err := s.o.Processes.Of(id)
	if err != nil {
		return nil, fmt.Errorf("%w: the processes cannot be read: %w", enforce.ErrUnavailable, err)
	}
	var found []Process
	for _, pid := range pids {
		if isKnown(known, pid) {
			continue
		}
		p, err := s.inspect(ctx, pid, gpus)
		if err != nil {
			return nil, err
		}
		if p != nil {
			found = append(found, *p)
		}
	}
	sortProcesses(found)
	return found, nil
}

// inspect returns nil for a process that does not use CUDA, or has ended.
func (s *Swapper) inspect(ctx context.Context, pid int, gpus []GPU) (*Process, error) {
	stat, err := s.o.Processes.Stat(pid)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // it ended meanwhile
	}
	if err != nil { // it may use CUDA
		return nil, fmt.Errorf("%w: process %d cannot be read: %w", enforce.ErrUnavailable, pid, err)
	}
	held := bytesOf(gpus, pid)
	if stat.Stopped {
		if len(held) == 0 {
			return nil, nil //nolint:nilnil // it holds nothing, and cannot take anything
		}
		return nil, cannot("process %d is stopped by a signal, at an allocation perhaps: it has to be released first", pid)
	}
	state, err := s.state(ctx, pid)
	switch {
	case errors.Is(err, ErrUnavailable):
		return nil, fmt.Errorf("%w: %w", enforce.ErrCannotSwap, err)
	case errors.Is(err, ErrNoCUDA) && len(held) > 0:
		if !s.alive(Process{PID: pid, Start: stat.Start}) {
			return nil, nil //nolint:nilnil // it ended meanwhile
		}
		return nil, cannot("process %d holds GPU memory and the driver does not know it as one that it can checkpoint (MPS? started by an older driver?): %w", pid, err)
	case errors.Is(err, ErrNoCUDA):
		return nil, nil //nolint:nilnil // as it says
	case err != nil:
		return nil, fmt.Errorf("%w: %w", enforce.ErrUnavailable, err)
	case state != Running:
		return nil, cannot("somebody else has process %d %s", pid, state)
	case stat.Traced:
		return nil, cannot("a debugger is attached to process %d", pid)
	}
	return &Process{PID: pid, Start: stat.Start, Bytes: held}, nil
}

// state asks again if the helper died: asking changes nothing.
func (s *Swapper) state(ctx context.Context, pid int) (State, error) {
	for again := true; ; again = false {
		asked, cancel := context.WithTimeout(ctx, s.o.AnswerTimeout)
		state, err := s.o.Driver.State(asked, pid)
		cancel()
		if !again || !errors.Is(err, ErrHelper) || ctx.Err() != nil {
			return state, err
		}
	}
}

// promise is hostRoom for a suspend: what it needs is kept for it until copied or forgetPromise says
// otherwise, so that suspends at the same time do not count on the same memory.
func (s *Swapper) promise(id string, processes []Process) error {
	s.promising.Lock()
	defer s.promising.Unlock()
	need, err := s.hostRoom(id, processes)
	if err == nil {
		s.promised[id] = need
	}
	return err
}

// copied ends the promise for a process: from now on the host's free memory lacks what it held.
func (s *Swapper) copied(id string, p Process) {
	s.promising.Lock()
	defer s.promising.Unlock()
	s.promised[id] -= min(s.promised[id], p.bytes())
}

// keep promises a restored process the host memory that it has just freed: if another one of its
// container cannot be restored, it is taken off the GPU again.
func (s *Swapper) keep(id string, p Process) {
	s.promising.Lock()
	defer s.promising.Unlock()
	s.promised[id] += p.bytes()
}

func (s *Swapper) forgetPromise(id string) {
	s.promising.Lock()
	defer s.promising.Unlock()
	delete(s.promised, id)
}

// hostRoom returns what the processes hold on the GPUs, bytes, or an error if the host has no memory
// for it besides what is promised to others. The caller holds promising.
func (s *Swapper) hostRoom(id string, processes []Process) (need uint64, err error) {
	if len(processes) == 0 { // a new one was seen, and ended
		return 0, nil
	}
	for _, p := range processes {
		need += p.bytes()
	}
	var others uint64
	for of, b := range s.promised {
		if of != id {
			others += b
		}
	}
	free, why, err := s.o.Processes.HostFree(id, processes[0].PID, others)
	switch {
	case err != nil:
		return need, cannot("how much host memory it may take cannot be read: %w", err)
	case free < need+s.o.HostReserve:
		return need, fmt.Errorf("%w: %w: it needs %d MiB, and %s has %d MiB free of which %d MiB are a reserve",
			enforce.ErrCannotSwap, enforce.ErrNoHostMemory, need>>20, why, free>>20, s.o.HostReserve>>20)
	}
	return need, nil
}

func (s *Swapper) refusal(id string, processes []Process) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.refused[id]
	if !ok {
		return nil
	}
	for _, p := range processes {
		if r.processes[p.PID] == p.Start {
			return r.why
		}
	}
	delete(s.refused, id)
	return nil
}

// refuse remembers that the driver could not swap the container.
func (s *Swapper) refuse(id string, processes []Process, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := refusal{processes: map[int]uint64{}, why: why}
	for _, p := range processes {
		r.processes[p.PID] = p.Start
	}
	if len(s.refused) > 1000 {
		clear(s.refused) // most are of containers that have ended
	}
	s.refused[id] = r
}

// alive reports whether the process lives, and not another one with its PID. One that cannot be read now (too
// many open files, say) counts as alive: it may be off its GPU.
func (s *Swapper) alive(p Process) bool {
	stat, err := s.o.Processes.Stat(p.PID)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	return p.Start == 0 || stat.Start == p.Start
}

// limit is how long a step may take that moves the memory of a process.
func (s *Swapper) limit(p Process) time.Duration {
	return s.o.StepTimeout + time.Duration(float64(p.bytes())/float64(s.o.MinRate)*float64(time.Second))
}

// gpus reads the memory of the GPUs.
func (s *Swapper) gpus(ctx context.Context) ([]GPU, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.AnswerTimeout)
	defer cancel()
	return s.o.Memory.GPUs(ctx)
}
