package actuator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/laxity/laxity/actuator/enforce/memory"
	"github.com/laxity/laxity/actuator/enforce/stop"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/cudaprobe"
)

// guardLease is for how long allocations are held after Cover was last called.
const guardLease = 5 * time.Second

// guardService is the memory guard of this machine, as the loop uses it.
type guardService struct {
	o       memory.Options
	open    func() (task.Ledger, error)
	log     *slog.Logger
	stop    context.CancelFunc
	ended   chan error
	running sync.RWMutex
	guard   *memory.Guard // nil: there is none, and why says why
	why     error

	failing  sync.Mutex
	failures map[string]string // by container id
}

func newGuardService(o Options, d memory.Decider) *guardService {
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &guardService{
		failures: map[string]string{},
		o:        memory.Options{Name: memory.Name(o.StateDir), Container: o.ContainerOf, Decider: d, MaxWait: o.Config.MaxHold, Logger: log},
		open:     o.OpenMemoryLedger, log: log, why: errors.New("the memory guard was not opened"),
	}
	s.o.Failed = s.failed
	return s
}

// Open begins to guard, where this machine can.
func (s *guardService) Open(ctx context.Context) error {
	g, err := s.make()
	s.running.Lock()
	s.guard, s.why = g, err
	s.running.Unlock()
	if err != nil {
		s.log.Warn("allocations of GPU memory are not guarded on this machine", "why", err)
		return nil
	}
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.ended = make(chan error, 1)
	go func() { s.ended <- g.Run(ctx) }()
	s.log.Info("allocations of GPU memory are guarded", "record", s.o.Name)
	return nil
}

func (s *guardService) make() (*memory.Guard, error) {
	ledger, err := s.open()
	if err != nil {
		return nil, fmt.Errorf("ledger of GPU memory: %w", err)
	}
	if err := cudaprobe.CheckTrace(); err != nil {
		return nil, err
	}
	s.o.Ledger = ledger
	return memory.New(s.o)
}

// Close lets everybody go.
func (s *guardService) Close() error {
	if s.stop == nil {
		return nil
	}
	s.stop()
	return errors.Join(<-s.ended, stop.Remove(s.o.Name))
}

// Why implements MemoryGuard.
func (s *guardService) Why() error {
	s.running.RLock()
	defer s.running.RUnlock()
	return s.why
}

func (s *guardService) get() *memory.Guard {
	s.running.RLock()
	defer s.running.RUnlock()
	return s.guard
}

// Cover implements MemoryGuard.
func (s *guardService) Cover(targets []MemoryTarget) {
	g := s.get()
	if g == nil {
		return
	}
	s.keepFailures(targets)
	all := make([]memory.Target, 0, len(targets))
	for _, t := range targets {
		all = append(all, memory.Target(t))
	}
	g.Cover(all)
	if err := g.Renew(guardLease); err != nil {
		s.log.Error("the memory guard opens", "err", err)
	}
}

// Reconsider implements MemoryGuard.
func (s *guardService) Reconsider() {
	if g := s.get(); g != nil {
		g.Reconsider()
	}
}

func (s *guardService) failed(id, why string) {
	s.failing.Lock()
	defer s.failing.Unlock()
	s.failures[id] = why
}

// keepFailures forgets those of containers that are gone.
func (s *guardService) keepFailures(targets []MemoryTarget) {
	s.failing.Lock()
	defer s.failing.Unlock()
	maps.DeleteFunc(s.failures, func(id string, _ string) bool {
		return !slices.ContainsFunc(targets, func(t MemoryTarget) bool { return t.ID == id })
	})
}

// Failures implements MemoryGuard.
func (s *guardService) Failures() map[string]string {
	s.failing.Lock()
	defer s.failing.Unlock()
	return maps.Clone(s.failures)
}

// Waits implements MemoryGuard.
func (s *guardService) Waits() map[string]string {
	if g := s.get(); g != nil {
		return g.Waits()
	}
	return nil
}
