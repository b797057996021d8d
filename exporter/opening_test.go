package exporter_test

import (
	"context"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/laxity/laxity/exporter"
	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/container/containertest"
	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/exporter/device/sim"
	"github.com/laxity/laxity/exporter/task"
)

// gated is a listener whose connections wait for the gate: to who opens the device, the driver hangs.
type gated struct {
	net.Listener
	gate <-chan struct{}
}

func (g gated) Accept() (net.Conn, error) {
	<-g.gate
	return g.Listener.Accept()
}

// lateCards is a device whose cards wait for the gate.
type lateCards struct {
	device.Device
	gate <-chan struct{}
}

func (l lateCards) Cards() (device.Cards, error) {
	<-l.gate
	return l.Device.(device.WithCards).Cards()
}

// The driver hangs when the exporter starts: what needs no driver is there, and the GPUs are once the
// driver answers.
func TestStartsWhileTheDriverHangs(t *testing.T) {
	for name, tt := range map[string]struct {
		open     func(t *testing.T, gpu *sim.GPU, gate <-chan struct{}, opt *exporter.Options)
		deviceUp bool // while it hangs
	}{
		"opening the device": {func(t *testing.T, gpu *sim.GPU, gate <-chan struct{}, opt *exporter.Options) {
			socket := filepath.Join(t.TempDir(), "gpu.sock")
			l, err := sim.Listen(t.Context(), socket)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan error, 1)
			go func() { done <- gpu.Serve(ctx, gated{l, gate}) }()
			t.Cleanup(func() {
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
			opt.Device = "sim:" + socket
		}, false},
		"opening its cards": {func(_ *testing.T, gpu *sim.GPU, gate <-chan struct{}, opt *exporter.Options) {
			opt.Parts.Device = lateCards{gpu.Device(), gate}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			gpu, err := sim.New(sim.Options{})
			if err != nil {
				t.Fatal(err)
			}
			gate := make(chan struct{})
			answers := sync.OnceFunc(func() { close(gate) })
			engine := &containertest.Fake{}
			opt := exporter.Options{Node: "test", DeviceTimeout: 50 * time.Millisecond, Parts: exporter.Parts{Containers: engine}}
			tt.open(t, gpu, gate, &opt)
			t.Cleanup(answers)
			began := time.Now()
			e := startWith(t, opt)
			if took := time.Since(began); took >= patience {
				t.Fatalf("New waited %v for the driver", took)
			}
			engine.Put(container.Container{Name: "web", Image: "img", Labels: deadline9s})
			s := e.await("the container", func(s *task.Snapshot) bool {
				return len(s.Containers) == 1 && s.Health.DeviceUp == tt.deviceUp && s.Health.DeviceUp != (s.Health.DeviceError != "") && s.Health.CardsError != ""
			})
			if len(s.Cards) > 0 {
				t.Errorf("cards of a driver that hangs: %+v", s.Cards)
			}
			answers()
			e.await("the recovery", func(s *task.Snapshot) bool {
				return s.Health.DeviceUp && len(s.GPUs) == 1 && len(s.Cards) == 1 && s.Health.CardsError == ""
			})
		})
	}
}
