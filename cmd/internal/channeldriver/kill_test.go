package channeldriver_test

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/actuator/enforce/proc"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/undo"
	"github.com/laxity/laxity/cmd/internal/channeldriver"
	"github.com/laxity/laxity/exporter/device/sim"
	"github.com/laxity/laxity/exporter/device/sim/simtest"
	"github.com/laxity/laxity/internal/rm"
	"github.com/laxity/laxity/internal/statefolder"
)

// TestMain is the actuator of the tests too.
func TestMain(m *testing.M) {
	if dir := os.Getenv("LAXITY_TEST_STATE"); dir != "" {
		act(dir, os.Getenv("LAXITY_TEST_DEVICE"), os.Getenv("LAXITY_TEST_PIDS"))
	}
	os.Exit(m.Run())
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func process(pid string) rm.Process {
	n, err := strconv.Atoi(pid)
	must(err)
	stat, _ := proc.ReadStat("/proc", n)
	return rm.Process{PID: n, Start: stat.Start}
}

func open(stateDir, device string) *channels.Enforcer {
	state, err := statefolder.Of(stateDir)
	must(err)
	e, err := channels.New(channels.Options{Driver: channeldriver.Open(device), Dir: channels.Folder(stateDir, state),
		Deadline: time.Minute})
	must(err)
	return e
}

// act is an actuator that changes its mind all the time, until it is killed.
func act(dir, device, pids string) {
	lock, err := journal.LockWithin(context.Background(), journal.ActuatorLock(dir), time.Minute)
	must(err)
	defer lock.Unlock() // an unreachable file is closed
	e := open(dir, device)
	_, err = e.RestoreAll(context.Background())
	must(err)
	var targets []channels.Target
	for pid := range strings.SplitSeq(pids, ",") {
		targets = append(targets, channels.Target{Container: pid, Processes: []rm.Process{process(pid)}})
	}
	slices := []time.Duration{time.Microsecond, 500 * time.Microsecond, time.Second, 0}
	for i := 0; ; i++ {
		for j, t := range targets {
			s := channels.Standing{Off: (i+j)%3 > 0, Slice: slices[(i+j)%len(slices)]}
			_, err := e.Apply(context.Background(), t, s)
			must(err)
		}
		if i == 0 {
			_, _ = os.Stdout.WriteString("acts\n")
		}
	}
}

// Whenever the actuator is killed, all that it did on the GPU is undone at once, by a guardian that
// watched or by one that starts. That takes less than a second, but a busy machine may stall for
// longer: the test tells the time, and fails for what hangs.
func TestActuatorIsKilled(t *testing.T) {
	kills := 6
	if n, err := strconv.Atoi(os.Getenv("LAXITY_TEST_KILLS")); err == nil {
		kills = n
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // not a secret
	s := simtest.Start(t, sim.Options{ContextTime: 5 * time.Millisecond, ListDelay: -1,
		Cards: []sim.Card{{Speed: sim.H200().Scaled(512).Faster(100)}}})
	var tenants []*simtest.Process
	var pids []string
	for range 2 {
		w := s.StartProcess(t, "--n", "512", "--repeat", "0")
		w.Await(t, "kernels_end")
		tenants, pids = append(tenants, w), append(pids, strconv.Itoa(w.PID))
	}
	dir, device := t.TempDir(), "sim:"+s.Socket
	guardian := func() <-chan error {
		done := make(chan error, 1)
		go func() {
			done <- undo.RunGuardian(context.Background(), undo.Options{StateDir: dir, Once: true,
				Channels: channeldriver.Open(device), RunDir: dir, Logger: slog.New(slog.DiscardHandler)})
		}()
		return done
	}
	var longest time.Duration
	for i := range kills {
		watched := i%2 == 0
		self, err := os.Executable()
		must(err)
		cmd := exec.CommandContext(t.Context(), self)
		cmd.Env = append(os.Environ(), "LAXITY_TEST_STATE="+dir, "LAXITY_TEST_DEVICE="+device, "LAXITY_TEST_PIDS="+strings.Join(pids, ","))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		must(err)
		must(cmd.Start())
		_, err = out.Read(make([]byte, 1))
		must(err)
		var done <-chan error
		if watched {
			done = guardian()
		}
		time.Sleep(time.Duration(random.IntN(100)) * time.Millisecond) // the moment is the point
		must(syscall.Kill(cmd.Process.Pid, syscall.SIGKILL))
		_ = cmd.Wait()
		began := time.Now()
		if !watched {
			done = guardian()
		}
		must(<-done)
		took := time.Since(began)
		longest = max(longest, took)
		if took > 30*time.Second {
			t.Errorf("kill %d: undone after %v", i, took)
		}
		if n, err := open(dir, device).Pending(); n != 0 || err != nil {
			list, _ := open(dir, device).Records()
			t.Fatalf("kill %d: %d on record, %v: %+v", i, n, err, list)
		}
		for j, w := range tenants {
			if s.Off(w.PID) {
				t.Fatalf("kill %d: tenant %d is stuck", i, j)
			}
			groups, err := channeldriver.Open(device).Find(t.Context(), process(pids[j]))
			must(err)
			if d, err := channeldriver.Open(device).Slice(t.Context(), groups[0]); d != 2048*time.Microsecond || err != nil {
				t.Fatalf("kill %d: tenant %d has a slice of %v, %v", i, j, d, err)
			}
		}
	}
	t.Logf("undone within %v at most", longest)
	for _, w := range tenants {
		for began := time.Now(); w.Await(t, "kernels_end").Time.Before(began); {
		}
	}
}

func TestOpen(t *testing.T) {
	if channeldriver.Open("auto") != nil || channeldriver.Open("sim:/x") == nil {
		t.Error("only the simulated GPU can be controlled so far")
	}
}
