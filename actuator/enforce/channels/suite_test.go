package channels_test

import (
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/actuator/enforce/channels/channelstest"
	"github.com/laxity/laxity/actuator/enforce/proc"
	"github.com/laxity/laxity/exporter/device/sim"
	"github.com/laxity/laxity/exporter/device/sim/simrm"
	"github.com/laxity/laxity/exporter/device/sim/simtest"
	"github.com/laxity/laxity/internal/rm"
)

var gpuNames = []string{"GPU-0", "GPU-1"}

func TestConformanceFake(t *testing.T) {
	channelstest.Run(t, func(t *testing.T) channelstest.Subject {
		m, pid := channelstest.NewMachine(), 100
		m.Start(99, gpuNames[0])
		t.Cleanup(func() {
			if wrong := m.Wrong(); len(wrong) > 0 {
				t.Errorf("calls for processes that were not meant: %v", wrong)
			}
		})
		return channelstest.Subject{
			Driver: m, State: m.State,
			Start: func(_ *testing.T, gpus int) rm.Process {
				pid++
				return m.Start(pid, gpuNames[:gpus]...)
			},
			Computes: func(t *testing.T, p rm.Process) {
				t.Helper()
				if m.Off(p) == m.Channels(p) {
					t.Errorf("it stands")
				}
			},
			Stands: func(t *testing.T, p rm.Process) {
				t.Helper()
				if n := m.Off(p); n < m.Channels(p) {
					t.Errorf("%d of %d channels are off", n, m.Channels(p))
				}
			},
			Kill:     func(_ *testing.T, p rm.Process) { m.Kill(p) },
			AddGroup: func(_ *testing.T, p rm.Process) { m.AddGroup(p, gpuNames[0]) },
		}
	})
}

func TestConformanceSimulatedGPU(t *testing.T) {
	channelstest.Run(t, func(t *testing.T) channelstest.Subject {
		s := quickServer(t)
		return simulated(s, func(t *testing.T, gpus int) *simtest.Tenant {
			if gpus > 1 {
				return &s.StartRanks(t, "--gpus", strconv.Itoa(gpus), "--kernel", "0.002").Tenant
			}
			return &s.StartProcess(t, "--n", "512", "--repeat", "0").Tenant
		})
	})
}

func TestConformanceContainers(t *testing.T) {
	if testing.Short() {
		t.Skip("starts 20 containers")
	}
	docker := simtest.Docker(t)
	image := simtest.Image(t, docker)
	channelstest.Run(t, func(t *testing.T) channelstest.Subject {
		s := quickServer(t)
		return simulated(s, func(t *testing.T, gpus int) *simtest.Tenant {
			spec := simtest.Spec{Image: image, Args: []string{"--n", "512", "--repeat", "0"}}
			if gpus > 1 {
				spec.Program, spec.Args = simtest.Ranks(t), []string{"--gpus", strconv.Itoa(gpus), "--kernel", "0.002"}
			}
			return &s.StartContainer(t, docker, spec).Tenant
		})
	})
}

func quickServer(t *testing.T) *simtest.Server {
	t.Helper()
	return simtest.Start(t, sim.Options{ContextTime: 5 * time.Millisecond, ListDelay: -1,
		Cards: []sim.Card{{Speed: sim.H200().Scaled(512).Faster(100)}, {Speed: sim.H200().Scaled(512).Faster(100)}}})
}

func simulated(s *simtest.Server, start func(t *testing.T, gpus int) *simtest.Tenant) channelstest.Subject {
	tenants := map[rm.Process]*simtest.Tenant{}
	return channelstest.Subject{
		Driver: simrm.New(s.Socket),
		Start: func(t *testing.T, gpus int) rm.Process {
			w := start(t, gpus)
			w.Await(t, "kernels_end")
			stat, _ := proc.ReadStat("/proc", w.PID)
			p := rm.Process{PID: w.PID, Start: stat.Start}
			tenants[p] = w
			return p
		},
		Computes: func(t *testing.T, p rm.Process) {
			t.Helper()
			if s.Off(p.PID) {
				t.Fatal("it is off")
			}
			for began := time.Now(); tenants[p].Await(t, "kernels_end").Time.Before(began); { // others are from before
			}
		},
		Stands: func(t *testing.T, p rm.Process) {
			t.Helper()
			if !s.Off(p.PID) {
				t.Error("it is on")
			}
		},
		Kill: func(t *testing.T, p rm.Process) {
			t.Helper()
			const patience = 30 * time.Second // for what hangs, not for a slow machine
			_ = syscall.Kill(p.PID, syscall.SIGKILL)
			began := time.Now()
			for used := uint64(1); used > 0; {
				r, err := s.Device().Read(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if used = r.GPUs[0].MemoryUsed; used > 0 && time.Since(began) > patience {
					t.Fatalf("%d bytes are left", used)
				}
			}
			for state, err := channels.StateOf(p); state != channels.Gone; state, err = channels.StateOf(p) {
				if err != nil || time.Since(began) > patience {
					t.Fatalf("state %v, %v", state, err)
				}
			}
		},
	}
}

func TestOptions(t *testing.T) {
	m := channelstest.NewMachine()
	for name, o := range map[string]channels.Options{
		"no driver": {Dir: t.TempDir()}, "no folder": {Driver: m}, "not a folder": {Driver: m, Dir: "/dev/null"},
	} {
		if _, err := channels.New(o); err == nil {
			t.Errorf("%s: want an error", name)
		}
	}
}

// What a standing costs besides the driver's calls: record, lock, and two looks at /proc for
// each call.
func BenchmarkOffAndOn(b *testing.B) {
	dir := "/dev/shm" // a file system in memory, as /run is
	if _, err := os.Stat(dir); err != nil {
		dir = ""
	}
	dir, err := os.MkdirTemp(dir, "laxity-test-")
	if err != nil {
		b.Fatal(err)
	}
	defer os.RemoveAll(dir)
	m := channelstest.NewMachine()
	p := m.Start(os.Getpid(), gpuNames[0])
	e, err := channels.New(channels.Options{Driver: m, Dir: dir, State: func(p rm.Process) (channels.State, error) {
		if _, err := channels.StateOf(p); err != nil { // as dear as a real one
			return channels.Lives, err
		}
		return m.State(p)
	}})
	if err != nil {
		b.Fatal(err)
	}
	t := channels.Target{Processes: []rm.Process{p}}
	for b.Loop() {
		for _, off := range []bool{true, false} {
			if _, err := e.Apply(b.Context(), t, channels.Standing{Off: off}); err != nil {
				b.Fatal(err)
			}
		}
	}
}
