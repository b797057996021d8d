package undo_test

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/laxity/laxity/actuator/enforce/enforcetest/probetest"
	"github.com/laxity/laxity/actuator/enforce/memory"
	"github.com/laxity/laxity/actuator/enforce/proc"
	"github.com/laxity/laxity/actuator/enforce/stop"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/undo"
	"github.com/laxity/laxity/internal/cudabpf"
	"github.com/laxity/laxity/internal/cudaprobe"
	"github.com/laxity/laxity/internal/cudaprobe/cudatest"
	"github.com/laxity/laxity/internal/engine"
	"github.com/laxity/laxity/internal/statefolder"
)

const patience = 30 * time.Second

// stopped is a process that the actuator of a state folder has stopped at an allocation.
type stopped struct {
	*cudatest.Program
	o      undo.Options
	guard  *cudaprobe.MemoryGuard // its actuator's
	record *stop.Record
	name   string
	ended  chan cudatest.Allocated
}

func stopOne(t *testing.T) *stopped {
	t.Helper()
	dir := t.TempDir()
	state, err := statefolder.Of(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := &stopped{name: memory.Name(state), ended: make(chan cudatest.Allocated, 1), o: undo.Options{
		StateDir: dir, RunDir: t.TempDir(), Logger: slog.New(slog.DiscardHandler),
		Engine: engine.Choice{Kind: engine.Docker, DockerHost: "unix://" + filepath.Join(dir, "none.sock")},
	}}
	s.guard, err = cudaprobe.NewMemoryGuard(cudaprobe.GuardOptions{Pins: s.name})
	probetest.Need(t, err)
	t.Cleanup(func() {
		if err := errors.Join(s.guard.Close(), stop.Remove(s.name)); err != nil {
			t.Error(err)
		}
	})
	if s.record, err = stop.OpenRecord(s.name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.record.Close() })
	s.Program = cudatest.Build(t).Start(t)
	s.Open()
	if err := errors.Join(s.guard.Renew(time.Hour), s.guard.Guard(cudaprobe.Guarded{PID: s.PID, Slots: []uint32{0}, On: 1})); err != nil {
		t.Fatal(err)
	}
	called := s.BeginAlloc("cuMemAlloc_v2", 1<<20, 1, 1)
	go func() { s.ended <- called() }()
	if e, err := s.guard.Next(); err != nil || e.PID != s.PID || e.Slipped {
		t.Fatalf("%+v, %v", e, err)
	}
	holds, err := s.record.List()
	if err != nil || len(holds) != 1 {
		t.Fatalf("on record: %+v, %v", holds, err)
	}
	if err := s.record.Renew(holds[0], stop.Now()+time.Hour); err != nil { // no sweeper ends it
		t.Fatal(err)
	}
	s.await(t, "the process stands", s.stands)
	return s
}

func (s *stopped) stands() bool {
	stat, ok := proc.ReadStat("/proc", s.PID)
	return ok && stat.State == 'T'
}

func (s *stopped) await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// awaitEnd waits until the allocation has returned.
func (s *stopped) awaitEnd(t *testing.T) {
	t.Helper()
	select {
	case a := <-s.ended:
		if a.Count != 1 {
			t.Errorf("%+v", a)
		}
	case <-time.After(patience):
		t.Fatal("the process stands still")
	}
}

// pinned reports whether the record is there.
func (s *stopped) pinned(t *testing.T) bool {
	t.Helper()
	_, err := os.Stat(cudaprobe.PinFolder(s.name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

func TestOffContinuesStoppedProcesses(t *testing.T) {
	s := stopOne(t)
	if err := undo.Off(t.Context(), s.o); err != nil {
		t.Error(err)
	}
	s.awaitEnd(t)
	if s.pinned(t) {
		t.Error("the record is still there")
	}
}

// A guardian continues those whom a living actuator stopped once that no longer renews its guard, and
// leaves the record to it.
func TestGuardianContinuesStoppedProcessesWhoseLeaseRanOut(t *testing.T) {
	s := stopOne(t)
	lock, err := journal.LockWithin(t.Context(), journal.ActuatorLock(s.o.StateDir), 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Unlock()
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		defer close(done)
		done <- undo.RunGuardian(ctx, s.o)
	}()
	t.Cleanup(func() {
		end()
		for range done { // it uses folders that are removed next
		}
	})
	s.polled(t)
	if !s.stands() {
		t.Error("the process went on though its guard is renewed")
	}
	if err := s.guard.Renew(0); err != nil {
		t.Error(err)
	}
	s.awaitEnd(t)
	end()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if !s.pinned(t) {
		t.Error("the record of a living actuator is removed")
	}
}

// polled waits until the guardian has looked for expired leases, by a hold of a process that has ended:
// its sweep, which follows, forgets it.
func (s *stopped) polled(t *testing.T) {
	t.Helper()
	holds, err := ebpf.LoadPinnedMap(filepath.Join(cudaprobe.PinFolder(s.name), cudabpf.MemoryMapHolds), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer holds.Close()
	gone := cudabpf.MemoryHoldKey{Pid: 1 << 30, Tid: 1 << 30, Time: uint64(stop.Now())} // more than there can be
	if err := holds.Put(gone, cudabpf.MemoryHold{Phase: cudabpf.MemoryHoldPhaseHOLD_STOPPED}); err != nil {
		t.Fatal(err)
	}
	var hold cudabpf.MemoryHold
	s.await(t, "the guardian polls", func() bool { return errors.Is(holds.Lookup(gone, &hold), ebpf.ErrKeyNotExist) })
}
