// Package checkpointtest holds what tests of swapping share: a machine in memory, with
// GPU, driver, processes and container engine and their faults at will, and the
// conformance suite that every enforce.Swapper runs.
package checkpointtest

import (
	"context"
	"fmt"
	"io/fs"
	"sync"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/enforce/checkpoint"
	"github.com/laxity/laxity/actuator/enforce/docker"
	"github.com/laxity/laxity/actuator/enforce/enforcetest"
	"github.com/laxity/laxity/actuator/journal"
)

// UUID is the machine's only GPU.
const UUID = "GPU-0"

// MiB is a mebibyte.
const MiB = 1 << 20

// Fault is asked before each call of the driver (state, lock, checkpoint, restore,
// unlock) and of the GPU's memory (memory, PID 0). An error is the call's; done tells
// whether the step takes effect all the same.
type Fault func(ctx context.Context, step string, pid int) (err error, done bool)

// Machine is a machine with one GPU. It implements checkpoint.Driver, Memory and
// Processes.
type Machine struct {
	Engine *enforcetest.Engine

	mu        sync.Mutex
	total     uint64
	host      uint64
	processes map[int]*process
	last      int
	ballast   uint64
	fault     Fault
	lost      int
}

type process struct {
	container string
	cuda      bool
	state     checkpoint.State
	bytes     uint64
	stat      checkpoint.Stat
}

// NewMachine makes a machine whose GPU has so many bytes, and its host ten times as many.
func NewMachine(total uint64) *Machine {
	return &Machine{Engine: enforcetest.NewEngine(), total: total, host: 10 * total, processes: map[int]*process{}, last: 100}
}

// Options of a Swapper on this machine, with limits that a busy test machine keeps.
func (m *Machine) Options(t testing.TB, stateDir string) checkpoint.Options {
	t.Helper()
	j, err := journal.Open(checkpoint.PauseJournal(stateDir))
	if err != nil {
		t.Fatal(err)
	}
	pauser, err := docker.New(docker.Options{Engine: m.Engine, Journal: j, Freezer: m.Engine, FreezeTimeout: 50 * time.Millisecond, Attempts: 2})
	if err != nil {
		t.Fatal(err)
	}
	return checkpoint.Options{StateDir: stateDir, Driver: m, Memory: m, Pauser: pauser, Processes: m,
		LockTimeout: time.Minute, StepTimeout: time.Minute, AnswerTimeout: time.Minute, Settle: time.Millisecond,
		GPUReserve: MiB, HostReserve: MiB}
}

// Start starts a process in a container, and the container if need be. Without bytes it
// does not use CUDA.
func (m *Machine) Start(container string, bytes uint64) (pid int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := false
	for _, p := range m.processes {
		known = known || p.container == container
	}
	if !known {
		m.Engine.Run(container)
	}
	m.last++
	m.processes[m.last] = &process{container: container, cuda: bytes > 0, bytes: bytes, state: checkpoint.Running,
		stat: checkpoint.Stat{Start: uint64(m.last)}}
	return m.last
}

// Kill ends one process.
func (m *Machine) Kill(pid int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.processes, pid)
}

// Remove removes a container and its processes.
func (m *Machine) Remove(container string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for pid, p := range m.processes {
		if p.container == container {
			delete(m.processes, pid)
		}
	}
	m.Engine.Remove(container)
}

// SetStat changes what the kernel says of a process.
func (m *Machine) SetStat(pid int, change func(*checkpoint.Stat)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(&m.processes[pid].stat)
}

// SetState puts a process into a state, as another program would.
func (m *Machine) SetState(pid int, s checkpoint.State) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.processes[pid].state = s
}

// SetHost says how much memory the host has free while nothing is checkpointed.
func (m *Machine) SetHost(bytes uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.host = bytes
}

// SetBallast takes memory of the GPU.
func (m *Machine) SetBallast(bytes uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ballast = bytes
}

// Break sets the fault; nil ends it.
func (m *Machine) Break(f Fault) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault = f
}

// StateOf is a process's state; empty if it is gone.
func (m *Machine) StateOf(pid int) checkpoint.State {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.processes[pid]; p != nil {
		return p.state
	}
	return ""
}

// Lost counts the processes that were restored without room.
func (m *Machine) Lost() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lost
}

func (m *Machine) used() uint64 {
	sum := m.ballast
	for _, p := range m.processes {
		if p.cuda && p.state != checkpoint.Checkpointed && p.state != checkpoint.Failed {
			sum += p.bytes
		}
	}
	return sum
}

// step is one call of the driver.
func (m *Machine) step(ctx context.Context, name string, pid int, f func(*process) error) error {
	m.mu.Lock()
	fault := m.fault
	m.mu.Unlock()
	var err error
	done := true
	if fault != nil {
		err, done = fault(ctx, name, pid)
	}
	if !done {
		return err
	}
	m.mu.Lock()
	p := m.processes[pid]
	if p == nil || !p.cuda {
		m.mu.Unlock()
		return fmt.Errorf("%w: %d", checkpoint.ErrNoCUDA, pid)
	}
	_, frozen := m.Engine.Paused(p.container)
	if frozen || p.stat.Stopped { // its threads cannot run: for ever
		m.mu.Unlock()
		<-ctx.Done()
		return fmt.Errorf("%w: %w", checkpoint.ErrHelper, ctx.Err())
	}
	defer m.mu.Unlock()
	if stepErr := f(p); stepErr != nil {
		return stepErr
	}
	return err
}

func (m *Machine) move(ctx context.Context, name string, pid int, from, to checkpoint.State) error {
	return m.step(ctx, name, pid, func(p *process) error {
		if p.state != from {
			return checkpoint.IllegalState
		}
		if name == "restore" && m.used()+p.bytes > m.total {
			p.state = checkpoint.Failed
			m.lost++
			return checkpoint.OutOfMemory
		}
		p.state = to
		return nil
	})
}

// State implements checkpoint.Driver.
func (m *Machine) State(ctx context.Context, pid int) (s checkpoint.State, err error) {
	err = m.step(ctx, "state", pid, func(p *process) error { s = p.state; return nil })
	return s, err
}

// Lock implements checkpoint.Driver.
func (m *Machine) Lock(ctx context.Context, pid int, _ time.Duration) error {
	return m.move(ctx, "lock", pid, checkpoint.Running, checkpoint.Locked)
}

// Checkpoint implements checkpoint.Driver.
func (m *Machine) Checkpoint(ctx context.Context, pid int) error {
	return m.move(ctx, "checkpoint", pid, checkpoint.Locked, checkpoint.Checkpointed)
}

// Restore implements checkpoint.Driver.
func (m *Machine) Restore(ctx context.Context, pid int) error {
	return m.move(ctx, "restore", pid, checkpoint.Checkpointed, checkpoint.Locked)
}

// Unlock implements checkpoint.Driver.
func (m *Machine) Unlock(ctx context.Context, pid int) error {
	return m.move(ctx, "unlock", pid, checkpoint.Locked, checkpoint.Running)
}

// GPUs implements checkpoint.Memory.
func (m *Machine) GPUs(ctx context.Context) ([]checkpoint.GPU, error) {
	m.mu.Lock()
	fault := m.fault
	m.mu.Unlock()
	if fault != nil {
		if err, _ := fault(ctx, "memory", 0); err != nil {
			return nil, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	g := checkpoint.GPU{UUID: UUID, Total: m.total, Used: m.used(), Processes: map[int]uint64{}}
	for pid, p := range m.processes {
		if p.cuda && p.state != checkpoint.Checkpointed && p.state != checkpoint.Failed {
			g.Processes[pid] = p.bytes
		}
	}
	return []checkpoint.GPU{g}, nil
}

// Of implements checkpoint.Processes.
func (m *Machine) Of(container string) ([]int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var pids []int
	for pid, p := range m.processes {
		if p.container == container {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// Stat implements checkpoint.Processes.
func (m *Machine) Stat(pid int) (checkpoint.Stat, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.processes[pid]
	if p == nil {
		return checkpoint.Stat{}, fs.ErrNotExist
	}
	return p.stat, nil
}

// HostFree implements checkpoint.Processes. What is checkpointed takes of the host's memory.
func (m *Machine) HostFree(_ string, _ int, promised uint64) (uint64, string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	taken := promised
	for _, p := range m.processes {
		if p.state == checkpoint.Checkpointed {
			taken += p.bytes
		}
	}
	return m.host - min(m.host, taken), "the host's memory", nil
}
