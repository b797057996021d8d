package allinone_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/laxity/laxity/actuator/actuatortest"
	"github.com/laxity/laxity/actuator/arbiter/core"
	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/cmd/internal/swaphelper"
	"github.com/laxity/laxity/cmd/laxity/internal/allinone"
	observed "github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/device/sim"
	"github.com/laxity/laxity/exporter/device/sim/simtest"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/needtest"
)

// The programs that an actuator starts are itself: here that is this test.
func TestMain(m *testing.M) {
	if len(os.Args) < 3 || os.Args[1] != swaphelper.Name {
		actuatortest.Main(m, observed.Proc("/proc").OfPID)
		return
	}
	device, _ := strings.CutPrefix(os.Args[2], "--device=")
	if err := (swaphelper.Options{Device: device}).Run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const (
	label = "com.github.laxity.swap-test"
	mib   = 1 << 20
)

// Two containers fill the card. With p3 the alert about its memory has the last in order swapped
// out, to the last byte; when the other has ended it comes back and goes on.
func TestFullCardIsSwapped(t *testing.T) {
	if os.Geteuid() != 0 {
		needtest.Root.Skip(t, "reading other processes' memory limits needs root")
	}
	docker := simtest.Docker(t)
	image := simtest.Image(t, docker)
	s := open(t, image, func(o *allinone.Options) {
		o.Config.Policy, o.Config.Arbitrate = "p3", config.Never
		o.Device, o.MemoryGuard, o.Sim = allinone.DeviceSim, config.MemoryOff, smallCard
	})
	gpu := &simtest.Server{Socket: s.Socket}
	run := func(labels map[string]string) *simtest.Container {
		labels[label] = image
		c := gpu.StartContainer(t, docker, simtest.Spec{Image: image, Labels: labels, Args: []string{"--n", "512", "--repeat", "0", "--alloc-extra", "380"}})
		c.Await(t, "holds") // from here on it may be swapped out, before its first launch too
		return c
	}
	decisions := s.Actuator.Decisions().Watch(t.Context(), 0)
	first := run(map[string]string{task.LabelDeadline: "1h"})
	last := run(map[string]string{task.LabelPause: "allow"})

	out := awaitSwap(t, decisions, decision.SwapOut, last.ID)
	await(t, s, func(x task.Task, held map[string]uint64) bool { return x.State == task.Swapped && total(held) == 0 }, last.ID)
	goesOn(t, first, out.Time)

	if err := docker.ContainerRemove(t.Context(), first.ID, container.RemoveOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	in := awaitSwap(t, decisions, decision.SwapIn, last.ID)
	if in.Bytes != out.Bytes || out.Bytes < 480*mib {
		t.Errorf("%d bytes out, %d in", out.Bytes, in.Bytes)
	}
	await(t, s, func(x task.Task, held map[string]uint64) bool {
		return x.State == task.Running && total(held) == out.Bytes
	}, last.ID)
	goesOn(t, last, in.Time)
}

// smallCard is a GPU of which two containers need more than there is.
var smallCard = sim.Options{ContextMemory: 100 * mib, Cards: []sim.Card{{Memory: 1000 * mib, Speed: sim.H200().Scaled(512).Faster(20)}},
	Checkpoint: sim.CheckpointCost{Checkpoint: 10 * time.Millisecond, Restore: 10 * time.Millisecond}}

// open starts a stack that acts on containers with this value of label alone, and
// whose GPU and whatever else matters change fills in.
func open(t *testing.T, value string, change func(*allinone.Options)) *allinone.Stack {
	t.Helper()
	dir, err := os.MkdirTemp("", "laxity-test-") // the path of a socket is short
	check(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	check(t, os.Chmod(dir, 0o755)) //nolint:gosec // tenants run as any user
	o := allinone.Options{
		Node: "local", Sensor: "device", StateDir: dir, LockDir: t.TempDir(),
		Keep:  func(c observed.Container) bool { return c.Labels[label] == value },
		Allow: core.Allow{label + "=" + value}, Interval: 200 * time.Millisecond,
		Hold: config.HoldPause, Logger: slog.New(slog.DiscardHandler),
	}
	change(&o)
	s, err := allinone.New(o)
	check(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() { cancel(); check(t, <-done) })
	return s
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func awaitSwap(t *testing.T, decisions <-chan decision.Decision, kind decision.Kind, id string) decision.Decision {
	t.Helper()
	timeout := time.After(time.Minute)
	for {
		select {
		case d := <-decisions:
			t.Logf("%s %s %.12s %s %s", d.Kind, d.Result, d.ContainerID, d.Reason, d.Error)
			if d.Kind == kind && d.Result == decision.Done {
				if d.ContainerID != id {
					t.Fatalf("it was %s", d.Container)
				}
				return d
			}
		case <-timeout:
			t.Fatalf("no %s within a minute", kind)
		}
	}
}

// await waits until the exporter shows the container's task as wanted.
func await(t *testing.T, s *allinone.Stack, wanted func(task.Task, map[string]uint64) bool, id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for snap := range s.Exporter.Watch(ctx) {
		c, ok := snap.FindContainer(id)
		for _, x := range snap.Tasks {
			if ok && x.ContainerID == id && wanted(x, c.MemoryUsed) {
				return
			}
		}
	}
	t.Fatalf("the exporter never showed it: %+v", s.Exporter.Snapshot().Tasks)
}

func total(held map[string]uint64) (sum uint64) {
	for _, n := range held {
		sum += n
	}
	return sum
}

// goesOn waits for a kernel that ended after then.
func goesOn(t *testing.T, c *simtest.Container, then time.Time) {
	t.Helper()
	for !c.Await(t, "kernels_end").Time.After(then) {
	}
}
