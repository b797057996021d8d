package guard

import (
	"context"
	"errors"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/laxity/laxity/actuator/enforce/memory"
	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/internal/cudaprobe"
	"github.com/laxity/laxity/internal/cudaprobe/cudatest"
	"github.com/laxity/laxity/internal/needtest"
)

// standIn is the device of the stand-in library.
type standIn struct{ built cudatest.Built }

func (s standIn) Read(context.Context) (device.Reading, error) {
	held, err := s.built.Usage()
	g := device.GPU{UUID: "GPU-1"}
	for pid, bytes := range held {
		g.Processes = append(g.Processes, device.Process{PID: pid, MemoryUsed: bytes})
	}
	return device.Reading{GPUs: []device.GPU{g}}, err
}

func (standIn) Close() error { return nil }

// The experiment works on the stand-in: a limit holds, and all ways are measured.
func TestOnTheStandIn(t *testing.T) {
	if err := memory.Check(); errors.Is(err, cudaprobe.ErrUnsupported) {
		needtest.BPF.Skip(t, err)
	}
	_, _ = syscall.Setsid() // the guard lets alone what runs under a shell with job control
	b := cudatest.Build(t)
	t.Setenv("LAXITY_LEDGER", b.Dir)
	program := filepath.Join(t.TempDir(), "alloc")
	if err := build(t.Context(), program, source); err != nil {
		t.Fatal(err)
	}
	var rows []bench.Row
	for _, way := range []string{without, passed, granted, denied, limited} {
		more, err := one(t.Context(), standIn{b}, []string{program, b.Library}, way, 200)
		if err != nil {
			t.Fatal(way, err)
		}
		rows = append(rows, more...)
	}
	for _, line := range table(rows) {
		t.Log(line)
	}
	// The stand-in has 16 GiB; a context takes 64 MiB.
	if fits := of(rows, without, "fits"); fits != 127 {
		t.Errorf("%v steps fit without a limit", fits)
	}
	if fits := of(rows, limited, "fits"); fits != 7 {
		t.Errorf("%v steps fit with a limit", fits)
	}
	for _, f := range figures(rows) {
		if f.Runs != 1 || !(f.Ratio > 0) {
			t.Errorf("%+v", f)
		}
	}
}
