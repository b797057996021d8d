package stop_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/actuator/enforce/enforcetest/probetest"
	"github.com/laxity/laxity/actuator/enforce/proc"
	"github.com/laxity/laxity/actuator/enforce/stop"
	"github.com/laxity/laxity/internal/cudabpf"
	"github.com/laxity/laxity/internal/cudaprobe"
	"github.com/laxity/laxity/internal/cudaprobe/cudatest"
)

const (
	patience = 30 * time.Second
	mib      = 1 << 20
)

// held is a program that the kernel's program holds at an allocation, and that nobody
// decides about.
type held struct {
	*cudatest.Program
	name   string
	guard  *cudaprobe.MemoryGuard
	record *stop.Record
	hold   stop.Hold
	ended  chan cudatest.Allocated
}

func hold(t *testing.T) *held {
	t.Helper()
	h := &held{name: cudatest.RecordName(t), ended: make(chan cudatest.Allocated, 1)}
	guard, err := cudaprobe.NewMemoryGuard(cudaprobe.GuardOptions{Pins: h.name})
	probetest.Need(t, err)
	h.guard = guard
	t.Cleanup(func() {
		if err := errors.Join(guard.Close(), stop.Remove(h.name)); err != nil {
			t.Error(err)
		}
	})
	if err := guard.Renew(time.Hour); err != nil {
		t.Fatal(err)
	}
	if h.record, err = stop.OpenRecord(h.name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.record.Close() })
	h.Program = cudatest.Build(t).Start(t)
	h.Open()
	if err := guard.Guard(cudaprobe.Guarded{PID: h.PID, Slots: []uint32{0}, On: 1}); err != nil {
		t.Fatal(err)
	}
	called := h.BeginAlloc("cuMemAlloc_v2", mib, 1, 1)
	go func() { h.ended <- called() }()
	if e, err := guard.Next(); err != nil || e.PID != h.PID || e.Slipped {
		t.Fatalf("%+v, %v", e, err)
	}
	holds, err := h.record.List()
	if err != nil || len(holds) != 1 || holds[0].Phase != stop.Stopped {
		t.Fatalf("%+v, %v", holds, err)
	}
	h.hold = holds[0]
	await(t, h.PID, true)
	return h
}

// await waits until a process is stopped by a signal, or is not.
func await(t *testing.T, pid int, stopped bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		s, ok := proc.ReadStat("/proc", pid)
		if ok && (s.State == 'T') == stopped {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d is in state %c", pid, s.State)
		}
	}
}

func (h *held) awaitEnd(t *testing.T) {
	t.Helper()
	select {
	case a := <-h.ended:
		if a.Count != 1 {
			t.Errorf("%+v", a)
		}
	case <-time.After(patience):
		t.Fatal("it stands still")
	}
	if holds, err := h.record.List(); err != nil || len(holds) != 0 {
		t.Errorf("still on record: %+v, %v", holds, err)
	}
}

func TestSweeperContinuesWhomNobodyWants(t *testing.T) {
	h := hold(t)
	if strays, err := h.record.Sweep("/proc", h.hold.At); err != nil || len(strays) != 0 {
		t.Fatalf("at once: %+v, %v", strays, err)
	}
	strays, err := h.record.Sweep("/proc", h.hold.At+time.Second)
	if err != nil || len(strays) != 1 || strays[0].PID != h.PID {
		t.Errorf("%+v, %v", strays, err)
	}
	h.awaitEnd(t)
}

func TestSweeperLeavesWhomSomebodyWants(t *testing.T) {
	h := hold(t)
	if err := h.record.Renew(h.hold, h.hold.At+time.Hour); err != nil {
		t.Fatal(err)
	}
	if strays, err := h.record.Sweep("/proc", h.hold.At+time.Minute); err != nil || len(strays) != 0 {
		t.Errorf("%+v, %v", strays, err)
	}
	await(t, h.PID, true)
	if strays, err := h.record.Sweep("/proc", h.hold.At+time.Hour); err != nil || len(strays) != 1 {
		t.Errorf("%+v, %v", strays, err)
	}
	h.awaitEnd(t)
}

func TestSweeperGoesOnWhereAnotherOneDied(t *testing.T) {
	h := hold(t)
	now := stop.Now()
	if err := h.record.Release(h.hold, now); err != nil { // and then it died
		t.Fatal(err)
	}
	if strays, err := h.record.Sweep("/proc", now+time.Second); err != nil || len(strays) != 1 {
		t.Errorf("%+v, %v", strays, err)
	}
	h.awaitEnd(t)
}

func TestWhomADeadGuardLeftIsNoStray(t *testing.T) {
	h := hold(t)
	time.Sleep(time.Until(time.Now().Add(h.hold.At + time.Second - stop.Now()))) // SweepAll reads the clock
	if strays, err := stop.SweepAll(stop.Options{Name: h.name}, stop.Now()); err != nil || len(strays) != 0 {
		t.Errorf("%+v, %v", strays, err)
	}
	h.awaitEnd(t)
}

// A guardian releases whom a living actuator holds only if that no longer renews its guard.
func TestReleaseIfExpiredWaitsForTheEndOfTheLease(t *testing.T) {
	h := hold(t)
	release := func() (int, error) {
		return stop.ReleaseAll(t.Context(), stop.Options{Name: h.name, IfExpired: true})
	}
	if n, err := release(); err != nil || n != 0 {
		t.Errorf("while the guard is renewed %d are released, %v", n, err)
	}
	await(t, h.PID, true)
	if holds, err := h.record.List(); err != nil || len(holds) != 1 || holds[0].Phase != stop.Stopped {
		t.Errorf("on record then: %+v, %v", holds, err)
	}
	if err := h.guard.Renew(0); err != nil { // the lease ends now
		t.Fatal(err)
	}
	if n, err := release(); err != nil || n != 1 {
		t.Errorf("%d are released, %v", n, err)
	}
	h.awaitEnd(t)
}

// One process that cannot be continued keeps no other one stopped. It is tried again, and stays on record.
func TestReleaseTriesEverybody(t *testing.T) {
	h := hold(t)
	blocked := h.Program
	other := &held{name: h.name, guard: h.guard, record: h.record, ended: make(chan cudatest.Allocated, 1), Program: cudatest.Build(t).Start(t)}
	other.Open()
	if err := h.guard.Guard(cudaprobe.Guarded{PID: other.PID, Slots: []uint32{0}, On: 1}); err != nil {
		t.Fatal(err)
	}
	called := other.BeginAlloc("cuMemAlloc_v2", mib, 1, 1)
	go func() { other.ended <- called() }()
	await(t, other.PID, true)
	procs := t.TempDir() // a proc file system without the first one
	link := func(pid int) {
		t.Helper()
		if err := os.Symlink(filepath.Join("/proc", strconv.Itoa(pid)), filepath.Join(procs, strconv.Itoa(pid))); err != nil {
			t.Fatal(err)
		}
	}
	link(other.PID)
	n, err := stop.ReleaseAll(t.Context(), stop.Options{Name: h.name, Proc: procs})
	if want := fmt.Sprintf("process %d", blocked.PID); n != 1 || err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%d are released: %v, want an error of %s", n, err, want)
	}
	if a := <-other.ended; a.Count != 1 {
		t.Errorf("the other one: %+v", a)
	}
	await(t, blocked.PID, true)
	if holds, err := h.record.List(); err != nil || len(holds) != 1 || holds[0].PID != blocked.PID {
		t.Errorf("on record: %+v, %v", holds, err)
	}
	if err := stop.RemoveEmpty(h.name); err == nil || !strings.Contains(err.Error(), strconv.Itoa(blocked.PID)) {
		t.Errorf("the record of who stands is removed: %v", err)
	}
	link(blocked.PID)
	if n, err := stop.ReleaseAll(t.Context(), stop.Options{Name: h.name, Proc: procs}); err != nil || n != 1 {
		t.Errorf("%d are released, %v", n, err)
	}
	h.awaitEnd(t)
	if err := stop.RemoveEmpty(h.name); err != nil {
		t.Error(err)
	}
	if _, err := stop.OpenRecord(h.name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the empty record stays: %v", err)
	}
}

// What fails for a moment is tried again.
func TestReleaseTriesAgain(t *testing.T) {
	h := hold(t)
	procs := t.TempDir()
	time.AfterFunc(5*time.Millisecond, func() {
		_ = os.Symlink(filepath.Join("/proc", strconv.Itoa(h.PID)), filepath.Join(procs, strconv.Itoa(h.PID)))
	})
	for deadline := time.Now().Add(patience); ; { // the link may be late on a busy machine
		began := time.Now()
		n, err := stop.ReleaseAll(t.Context(), stop.Options{Name: h.name, Proc: procs})
		if err == nil && n == 1 {
			break
		}
		if took := time.Since(began); err == nil || took < 30*time.Millisecond || time.Now().After(deadline) {
			t.Fatalf("%d are released after %v, %v", n, took, err)
		}
	}
	h.awaitEnd(t)
}

// A guard that cannot be opened is no reason to leave anybody stopped.
func TestReleaseContinuesThoughTheGuardCannotBeOpened(t *testing.T) {
	h := hold(t)
	until, err := ebpf.LoadPinnedMap(filepath.Join(cudaprobe.PinFolder(h.name), cudabpf.MemoryMapUntil), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer until.Close()
	if err := until.Freeze(); err != nil {
		t.Fatal(err)
	}
	if n, err := stop.ReleaseAll(t.Context(), stop.Options{Name: h.name}); n != 1 || !errors.Is(err, unix.EPERM) {
		t.Errorf("%d are released, %v; want 1, and why the guard is not open", n, err)
	}
	h.awaitEnd(t)
}

// A process that somebody else stops while we hold it stays stopped until he continues it.
func TestSomebodyElsesStopIsKept(t *testing.T) {
	h := hold(t)
	send := func(s syscall.Signal) {
		if err := syscall.Kill(h.PID, s); err != nil {
			t.Fatal(err)
		}
	}
	send(syscall.SIGSTOP)
	if n, err := stop.ReleaseAll(t.Context(), stop.Options{Name: h.name}); err != nil || n != 1 {
		t.Errorf("%d, %v", n, err)
	}
	await(t, h.PID, true)
	select {
	case <-h.ended:
		t.Error("it ran")
	default:
	}
	send(syscall.SIGCONT)
	h.awaitEnd(t)
}

// Another process that has the PID of one on record gets no signal.
func TestAStrangerWithThePIDIsNotTouched(t *testing.T) {
	h := hold(t)
	stranger := exec.Command("sleep", "60")
	stranger.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	pid := stranger.Process.Pid
	t.Cleanup(func() { _ = stranger.Process.Kill(); _ = stranger.Wait() })
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	await(t, pid, true)
	holds, err := ebpf.LoadPinnedMap(filepath.Join(cudaprobe.PinFolder(h.name), cudabpf.MemoryMapHolds), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer holds.Close()
	key := cudabpf.MemoryHoldKey{Pid: uint32(pid), Tid: uint32(pid), Time: uint64(h.hold.At)}
	old := cudabpf.MemoryHold{Start: uint64(time.Second), Phase: cudabpf.MemoryHoldPhaseHOLD_STOPPED} // it started a second after the boot
	if err := holds.Put(key, old); err != nil {
		t.Fatal(err)
	}
	if n, err := stop.ReleaseAll(t.Context(), stop.Options{Name: h.name}); err != nil || n != 1 {
		t.Errorf("%d were continued; %v", n, err)
	}
	h.awaitEnd(t)
	if s, ok := proc.ReadStat("/proc", pid); !ok || s.State != 'T' {
		t.Errorf("the stranger is in state %c", s.State)
	}
	if err := unix.Kill(pid, unix.SIGCONT); err != nil {
		t.Error(err)
	}
}
