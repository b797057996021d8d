package memory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/laxity/laxity/actuator/enforce/stop"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/cudaprobe"
)

// guardLease is for how long allocations are held after Cover was last called.
const guardLease = 5 * time.Second

// Why nothing is guarded, though it was.
var (
	errGuardEnded = errors.New("the memory guard has ended: restart the actuator")
	errGuardHangs = errors.New("the memory guard hangs: restart the actuator if that lasts")
)

// Service is the memory guard of this machine. Where there can be none, Why says why.
type Service struct {
	o       Options
	open    func() (task.UsageReader, error)
	log     *slog.Logger
	stop    context.CancelFunc
	ended   chan error
	running sync.Mutex
	guard   *Guard // nil: there is none, and why says why
	why     error
	untaken time.Time // since when it takes no targets; zero if it does
	hangs   bool      // it has taken none for guardLease

	failing  sync.Mutex
	failures map[string]string // by container id
	passing  map[string]string // those that end, see Options.Passing
}

// NewService returns a service that guards nothing until Open. o is as for New; its Usage, Failed and
// Passing are set by the service, and open opens the reader of the device's memory.
func NewService(o Options, open func() (task.UsageReader, error)) *Service {
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Service{o: o, open: open, log: o.Logger, failures: map[string]string{}, passing: map[string]string{}, why: errors.New("the memory guard was not opened")}
	s.o.Failed, s.o.Passing = s.failed, s.onPassing
	return s
}

// Open implements arbiter.MemoryGuard.
func (s *Service) Open(ctx context.Context) error {
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
	go func() { s.ended <- s.run(ctx, g.Run) }()
	s.log.Info("allocations of GPU memory are guarded", "record", s.o.Name)
	return nil
}

// run runs the guard, and says so if it ends before ctx does.
func (s *Service) run(ctx context.Context, guard func(context.Context) error) error {
	err := guard(ctx)
	if ctx.Err() == nil {
		why := errGuardEnded
		if err != nil {
			why = fmt.Errorf("%w: %w", errGuardEnded, err)
		}
		s.running.Lock()
		s.guard, s.why = nil, why
		s.running.Unlock()
		s.log.Error("allocations of GPU memory are no longer guarded", "why", errGuardEnded, "err", err)
	}
	return err
}

func (s *Service) make() (*Guard, error) {
	usage, err := s.open()
	if err != nil {
		return nil, fmt.Errorf("read the memory of the GPUs: %w", err)
	}
	if err := cudaprobe.CheckTrace(); err != nil {
		return nil, err
	}
	s.o.Usage = usage
	return New(s.o)
}

// Close implements arbiter.MemoryGuard: it continues every stopped process. The record stays while it
// lists one that could not be continued: the guardian and the next actuator take a missing record for
// an empty one.
func (s *Service) Close() error {
	if s.stop == nil {
		return nil
	}
	s.stop()
	return errors.Join(<-s.ended, stop.RemoveEmpty(s.o.Name))
}

// Why implements arbiter.MemoryGuard.
func (s *Service) Why() error {
	s.running.Lock()
	defer s.running.Unlock()
	if s.hangs && s.guard != nil && s.guard.targets.Load() == nil {
		s.note(true) // nobody may call Cover while it hangs
	}
	if s.why == nil && s.hangs {
		return errGuardHangs
	}
	return s.why
}

func (s *Service) get() *Guard {
	s.running.Lock()
	defer s.running.Unlock()
	return s.guard
}

// Cover implements arbiter.MemoryGuard.
func (s *Service) Cover(targets []Target) {
	g := s.get()
	if g == nil {
		return
	}
	s.keepFailures(targets)
	taken := g.Cover(targets)
	s.running.Lock()
	s.note(taken)
	s.running.Unlock()
	if !taken {
		return // if it hangs it must not go on holding allocations
	}
	if err := g.Renew(guardLease); err != nil {
		s.log.Error("the memory guard opens", "err", err)
	}
}

// note notes whether the guard took the targets that were handed over before. One that has taken none for
// guardLease hangs. The caller holds running.
func (s *Service) note(taken bool) {
	now, was := s.o.Now(), s.hangs
	switch {
	case taken:
		s.untaken = time.Time{}
	case s.untaken.IsZero():
		s.untaken = now
	}
	s.hangs = !taken && now.Sub(s.untaken) > guardLease
	switch {
	case s.hangs && !was:
		s.log.Error("allocations of GPU memory pass", "why", errGuardHangs)
	case was && !s.hangs:
		s.log.Info("allocations of GPU memory are guarded again")
	}
}

// SetMaxWait changes Options.MaxWait, also for calls that wait already.
func (s *Service) SetMaxWait(d time.Duration) {
	if g := s.get(); g != nil {
		g.SetMaxWait(d)
	}
}

// Reconsider implements arbiter.MemoryGuard.
func (s *Service) Reconsider() {
	if g := s.get(); g != nil {
		g.Reconsider()
	}
}

func (s *Service) failed(id, why string) {
	s.failing.Lock()
	defer s.failing.Unlock()
	s.failures[id] = why
}

// onPassing handles Options.Passing.
func (s *Service) onPassing(id, why string) {
	s.failing.Lock()
	defer s.failing.Unlock()
	if why != "" {
		s.passing[id] = why
		return
	}
	if was, is := s.passing[id]; is {
		delete(s.passing, id)
		s.log.Info("a container that may have got more than its limit is guarded, and within it", "container", id, "was", was)
	}
}

// keepFailures forgets those of containers that are gone.
func (s *Service) keepFailures(targets []Target) {
	s.failing.Lock()
	defer s.failing.Unlock()
	gone := func(id string, _ string) bool {
		return !slices.ContainsFunc(targets, func(t Target) bool { return t.ID == id })
	}
	maps.DeleteFunc(s.failures, gone)
	maps.DeleteFunc(s.passing, gone)
}

// Failures implements arbiter.MemoryGuard.
func (s *Service) Failures() map[string]string {
	s.failing.Lock()
	defer s.failing.Unlock()
	all := maps.Clone(s.passing)
	maps.Copy(all, s.failures) // what lasts says more
	return all
}

// Waits implements arbiter.MemoryGuard.
func (s *Service) Waits() map[string]string {
	if g := s.get(); g != nil {
		return g.Waits()
	}
	return nil
}
