// Package probetest holds what tests of the memory guard and of its kernel part share.
package probetest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/laxity/laxity/internal/cudaprobe"
	"github.com/laxity/laxity/internal/needtest"
)

// Members says which process is in which container: PID → id.
type Members struct{ sync.Map }

// Of is as the guard wants it.
func (m *Members) Of(pid int) (id string, ok bool, err error) {
	v, ok := m.Load(pid)
	if ok {
		id = v.(string)
	}
	return id, ok, nil
}

// Part is what runs, a guard for instance.
type Part interface {
	Renew(lease time.Duration) error
	Run(ctx context.Context) error
}

// Run runs a part until the test ends, and then removes its record by forget. err is of
// the part's making; where the kernel cannot have it the test is skipped.
func Run(t testing.TB, p Part, err error, forget func() error) {
	t.Helper()
	Need(t, err)
	if err := p.Renew(time.Hour); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, forget()); err != nil {
			t.Error(err)
		}
	})
}

// Need skips the test where the kernel cannot do what err is of. A program that the
// kernel's verifier refuses is a fault of ours, and fails it.
func Need(t testing.TB, err error) {
	t.Helper()
	_, ours := errors.AsType[*ebpf.VerifierError](err)
	if errors.Is(err, cudaprobe.ErrUnsupported) && !ours {
		needtest.BPF.Skip(t, err)
	}
	if err != nil {
		t.Fatalf("%+v", err)
	}
}
