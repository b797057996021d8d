package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/client"

	"github.com/laxity/laxity/actuator/enforce/gate"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/exporter"
	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/device/sim"
	"github.com/laxity/laxity/exporter/device/sim/simtest"
	"github.com/laxity/laxity/exporter/task"
)

// gateNode is a node with a simulated GPU, a real exporter that watches it, and
// the actuator as its own process.
type gateNode struct {
	*node
	gpu    *simtest.Server
	seen   *exporter.Exporter
	client *client.Client
	image  string
	mark   string // label of its tenants: other tests share the engine
}

const markLabel = "laxity-test-mark"

func newGateNode(t *testing.T, faster float64) *gateNode {
	t.Helper()
	g := &gateNode{node: newNode(t), mark: strconv.FormatInt(time.Now().UnixNano(), 36)}
	if _, err := gate.Check(); err != nil {
		t.Skip(err)
	}
	g.client = simtest.Docker(t)
	g.image = simtest.Image(t, g.client)
	g.gpu = simtest.Start(t, sim.Options{Cards: []sim.Card{{Speed: sim.H200().Scaled(512).Faster(faster)}}})
	e, err := exporter.New(exporter.Options{Node: "e2e", Device: "sim:" + g.gpu.Socket, Keep: func(c container.Container) bool {
		return c.Labels[markLabel] == g.mark
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	g.seen = e
	g.exporter.Close()
	g.exporter = httptest.NewServer(e.Handler())
	return g
}

// tenant starts the workload in a container.
func (g *gateNode) tenant(deadline string, args ...string) *simtest.Container {
	g.Helper()
	return g.gpu.StartContainer(g.T, g.client, simtest.Spec{
		Image: g.image, Labels: map[string]string{task.LabelDeadline: deadline, markLabel: g.mark}, Args: args,
	})
}

// stopped reports whether a process is stopped by a signal.
func stopped(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	return strings.HasPrefix(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " T")
}

// Kernels run one task after another in the order of their deadlines, while host
// and copy phases of all go on.
func TestGateOrdersKernels(t *testing.T) {
	g := newGateNode(t, 2)
	g.start("--hold=gate", "--policy=edf", "--share=one", "--arbitrate=always")
	args := []string{"--n", "512", "--host-seconds", "0.3"}
	// Long enough that the others get to their launch on a busy machine, too.
	first := g.tenant("60s", append(args, "--kernels", "8")...)
	first.Await(t, "launch")
	late := g.tenant("5m", args...)
	soon := g.tenant("2m", args...)
	var ends []time.Time
	copied := []time.Time{late.Await(t, "copyin_end").Time, soon.Await(t, "copyin_end").Time}
	// Held at its launch; its container is paused soon after.
	g.await("the exporter says that the last one waits", func() bool {
		return slices.ContainsFunc(g.seen.Snapshot().Tasks, func(k task.Task) bool {
			return k.ContainerID == late.ID && (k.State == task.Held || k.State == task.Paused)
		})
	})
	for _, c := range []*simtest.Container{first, soon, late} {
		ends = append(ends, c.Await(t, "kernels_end").Time)
	}
	for _, at := range copied {
		if at.After(ends[0]) {
			t.Errorf("input was copied at %v, after the first task's kernels ended at %v: phases do not overlap", at, ends[0])
		}
	}
	if !slices.IsSortedFunc(ends, time.Time.Compare) {
		t.Errorf("kernels of first, soon and late ended at %v", ends)
	}
	for i := 1; i < len(ends); i++ { // two kernels of 0.8 s; time slicing would end all at about the same time
		if gap := ends[i].Sub(ends[i-1]); gap < time.Second {
			t.Errorf("kernels of %d ended %v after those before: they did not run alone", i, gap)
		}
	}
	for _, c := range []*simtest.Container{first, soon, late} {
		if code := c.Wait(t); code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
	if left := g.onRecord(); left != 0 {
		t.Errorf("%d on record", left)
	}
}

// Whenever the actuator is killed, nobody stays stopped at the gate or paused.
// LAXITY_TEST_KILLS says how often; 5 by default.
func TestGateKilledAtRandomMoments(t *testing.T) {
	kills := 5
	if v, err := strconv.Atoi(os.Getenv("LAXITY_TEST_KILLS")); err == nil {
		kills = v
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // not a secret
	g := newGateNode(t, 20)
	var tenants []*simtest.Container
	for range 5 { // so many that those at the end of the line are parked
		tenants = append(tenants, g.tenant("60s", "--n", "512", "--repeat", "0", "--gap", "0.02"))
	}
	var slowest time.Duration
	held, parked := 0, 0
	for i := range kills {
		g.start("--hold=gate", "--share=one", "--arbitrate=always", "--log.level=warn")
		time.Sleep(time.Duration(100+r.IntN(700)) * time.Millisecond) // the moment is the point
		for _, c := range tenants {
			if stopped(c.PID) {
				held++
			}
			if g.docker.Paused(c.ID) {
				parked++
			}
		}
		killed := time.Now()
		if err := g.cmd.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		g.await("nobody is stopped", func() bool {
			return !slices.ContainsFunc(tenants, func(c *simtest.Container) bool { return stopped(c.PID) || g.docker.Paused(c.ID) })
		})
		slowest = max(slowest, time.Since(killed))
		_ = g.cmd.Wait()
		g.await("the guardian has ended", func() bool { return !journal.Taken(journal.GuardianLock(g.dir)) })
		for _, c := range tenants {
			if stopped(c.PID) || g.docker.Paused(c.ID) {
				t.Fatalf("kill %d: %s is stuck", i, c.Name)
			}
		}
		if left := g.onRecord(); left != 0 {
			t.Fatalf("kill %d: %d on record", i, left)
		}
	}
	t.Logf("%d kills, %d times somebody was held and %d times parked, all running again after %v at most", kills, held, parked, slowest)
}
