package channeldriver_test

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/actuator/enforce/channels/channelstest"
	"github.com/laxity/laxity/actuator/enforce/proc"
	"github.com/laxity/laxity/cmd/internal/channeldriver"
	"github.com/laxity/laxity/exporter"
	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/internal/needtest"
	"github.com/laxity/laxity/internal/rm"
	"github.com/laxity/laxity/internal/workload"
)

// patience is how long a real tenant may take for its next kernel.
const patience = 30 * time.Second

// real is a tenant of an NVIDIA GPU: matrices of 2048², a kernel of some milliseconds each.
type real struct {
	cmd    *exec.Cmd
	events chan workload.Event
}

func startReal(t *testing.T) (rm.Process, *real) {
	t.Helper()
	program, err := workload.Build("")
	if err != nil {
		needtest.GPU.Skip(t, err)
	}
	w := &real{cmd: exec.CommandContext(context.Background(), program, "--n", "2048", "--repeat", "0"), events: make(chan workload.Event, 1<<20)}
	w.cmd.Stderr = os.Stderr
	out, err := w.cmd.StdoutPipe()
	must(err)
	must(w.cmd.Start())
	ended := make(chan struct{})
	t.Cleanup(func() { _ = w.cmd.Process.Kill(); <-ended })
	go func() {
		defer close(ended)
		defer func() { _ = w.cmd.Wait() }()
		for e, err := range workload.Events(out) {
			if err != nil {
				return
			}
			w.events <- e
		}
	}()
	w.await(t, time.Time{})
	stat, _ := proc.ReadStat("/proc", w.cmd.Process.Pid)
	return rm.Process{PID: w.cmd.Process.Pid, Start: stat.Start}, w
}

// await waits for the end of a kernel after this moment.
func (w *real) await(t *testing.T, after time.Time) {
	t.Helper()
	late := time.After(patience)
	for {
		select {
		case e := <-w.events:
			if e.Name == "kernels_end" && e.Time.After(after) {
				return
			}
		case <-late:
			t.Fatalf("no kernel has ended for %v", patience)
		}
	}
}

// stands fails if a kernel ends. What ended before the call is in the pipe for a moment.
func (w *real) stands(t *testing.T) {
	t.Helper()
	began := time.Now()
	for end := time.After(500 * time.Millisecond); ; {
		select {
		case e := <-w.events:
			if e.Name == "kernels_end" && e.Time.After(began.Add(10*time.Millisecond)) {
				t.Fatalf("a kernel ended %v after its channels were off", e.Time.Sub(began))
			}
		case <-end:
			return
		}
	}
}

func TestConformanceNVIDIA(t *testing.T) {
	driver := channeldriver.Open("nvml")
	if driver == nil {
		needtest.GPU.Skip(t, "internal/rm is not there yet, or this machine has no NVIDIA GPU")
	}
	gpus, err := exporter.OpenDevice("nvml")
	if err != nil {
		needtest.GPU.Skipf(t, "needs an NVIDIA GPU: %v", err)
	}
	defer gpus.Close()
	channelstest.Run(t, func(*testing.T) channelstest.Subject {
		tenants := map[rm.Process]*real{}
		return channelstest.Subject{
			Driver: driver,
			Start: func(t *testing.T, gpus int) rm.Process {
				if gpus > 1 {
					t.Skip("the workload uses one GPU")
				}
				p, w := startReal(t)
				tenants[p] = w
				return p
			},
			Computes: func(t *testing.T, p rm.Process) { t.Helper(); tenants[p].await(t, time.Now()) },
			Stands:   func(t *testing.T, p rm.Process) { t.Helper(); tenants[p].stands(t) },
			Kill: func(t *testing.T, p rm.Process) {
				t.Helper()
				_ = tenants[p].cmd.Process.Kill()
				began := time.Now()
				for {
					r, err := gpus.Read(t.Context())
					must(err)
					state, err := channels.StateOf(p)
					must(err)
					listed := slices.ContainsFunc(r.GPUs, func(g device.GPU) bool {
						return slices.ContainsFunc(g.Processes, func(other device.Process) bool { return other.PID == p.PID })
					})
					if !listed && state == channels.Gone {
						return
					}
					if time.Since(began) > time.Second {
						t.Fatalf("it is listed: %v, in state %v, a second after its end", listed, state)
					}
				}
			},
		}
	})
}
