package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"

	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/cmd/laxity/internal/run"
	"github.com/laxity/laxity/cmd/laxity/internal/simrun"
	"github.com/laxity/laxity/exporter/device/sim/simtest"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/engine"
	"github.com/laxity/laxity/internal/enginetest"
)

// A port that is taken ends it at once, with what to do, and before it touches anything.
func TestUpEndsWhenAPortIsTaken(t *testing.T) {
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, flag := range []string{"--web.listen-address", "--actuator.listen-address"} {
		dir := filepath.Join(t.TempDir(), "state")
		args := []string{"up", "--device=sim", "--state-dir=" + dir}
		for _, f := range []string{"--web.listen-address", "--actuator.listen-address"} {
			address := "127.0.0.1:0"
			if f == flag {
				address = taken.Addr().String()
			}
			args = append(args, f+"="+address)
		}
		code, _, stderr := laxity(args...)
		if code != exitFailure || !strings.Contains(stderr, "address already in use") || !strings.Contains(stderr, flag) {
			t.Errorf("%s is taken: code %d, %q", flag, code, stderr)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s is taken: the state folder was made (%v)", flag, err)
		}
	}
}

// On a terminal laxity up says what it found and what happens, and what it released; laxity sim
// run finds its GPU.
func TestDoor(t *testing.T) {
	if testing.Short() {
		t.Skip("runs containers")
	}
	enginetest.Each(t, doorOf)
}

func doorOf(t *testing.T) {
	docker := simtest.Docker(t)
	s := terminal(t, 120, 50)
	dir := t.TempDir()
	label := "com.github.laxity.test=" + filepath.Base(dir)
	exporter, actuator := free(t)
	up := exec.CommandContext(context.Background(), os.Args[0], "up", "--device=sim", "--sensor=device", "--hold=pause", "--arbitrate=always", "--memory-guard=off", "--swap=off",
		"--docker.host="+docker.DaemonHost(), "--state-dir="+dir, "--lock-dir="+t.TempDir(), "--containers.label="+label, "--web.listen-address="+exporter, "--actuator.listen-address="+actuator)
	up.Stdout, up.Stderr = s.program, s.program
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- up.Wait() }()
	t.Cleanup(func() { _ = up.Process.Kill() })
	banner, at := s.await(0, "this actuator acts")
	for _, want := range []string{"GPU 0", "Simulated GPU, 141GiB", "http://127.0.0.1:", "laxity sim run --deadline 9s --socket " + filepath.Join(dir, "sim", "gpu.sock"), "containers that wait are paused", "--memory-guard=off", "edf, always"} {
		if !strings.Contains(banner, want) {
			t.Errorf("the banner has no %q:\n%s", want, banner)
		}
	}
	if strings.Contains(banner, "level=INFO") || strings.Contains(banner, "GPU-0000") {
		t.Errorf("the banner is a log:\n%s", banner)
	}

	names := []string{"laxity-test-first-" + filepath.Base(dir), "laxity-test-second-" + filepath.Base(dir)}
	t.Cleanup(func() {
		for _, name := range names {
			_ = docker.ContainerRemove(context.Background(), name, container.RemoveOptions{Force: true})
		}
		if tag, err := simrun.Image(context.Background(), docker); err == nil {
			_, _ = docker.ImageRemove(context.Background(), tag, image.RemoveOptions{Force: true})
		}
	})
	for i, deadline := range []string{"1h", "2h"} {
		code, stdout, stderr := laxity("sim", "run", "--deadline", deadline, "--socket", filepath.Join(dir, "sim", "gpu.sock"), "--name", names[i], "--label", label,
			"matmul", "--n", "1024", "--kernels", "50000", "--repeat", "0") // 2 s on the GPU each time: the first one fills it, however busy this machine is
		if code != exitOK || !strings.Contains(stdout, "laxity why "+names[i]) {
			t.Fatalf("sim run: code %d, %q, %q", code, stdout, stderr)
		}
	}
	for args, want := range map[string]string{"--requests 5": `no option "--requests"`, "--n soon": "--n takes a number", "--n": "--n needs a value", "fast": `unexpected argument "fast"`} {
		code, stdout, stderr := laxity(append([]string{"sim", "run", "--deadline", "9s", "--socket", filepath.Join(dir, "sim", "gpu.sock"), "--label", label, "server"}, strings.Fields(args)...)...)
		if code != run.ExitFailed || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("server %s: code %d, %q, %q; want %q", args, code, stdout, stderr, want)
		}
	}
	if code, stdout, stderr := laxity("sim", "run", "matmul", "--help"); code != exitOK || !strings.Contains(stdout, "--kernels K") {
		t.Errorf("help of matmul: code %d, %q, %q", code, stdout, stderr)
	}
	text, _ := s.await(at, "is paused")
	for _, want := range []string{"began a task, due in 1h", "began a task, due in 2h"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	conformsAll(t, exporter, actuator, tokenFile(dir), names[1])
	code, stdout, stderr := laxity("share", names[1], "30%", "--exporter.url=http://"+exporter, "--actuator.url=http://"+actuator, "--token.file="+tokenFile(dir))
	if code != exitOK || !strings.Contains(stdout, ": share 30%, was none. It is not kept here: GPU time is not divided by slices") {
		t.Errorf("share: code %d, %q, %q", code, stdout, stderr)
	}
	why := ""
	for end := time.Now().Add(time.Minute); !strings.Contains(why, "waits for "+names[0]); {
		if time.Now().After(end) {
			t.Fatalf("it is paused without a reason: %s", why)
		}
		_, why, _ = laxity("why", names[1], "--actuator.url=http://"+actuator)
	}
	if err := up.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	goodbye, _ := s.await(at, "Goodbye")
	if !strings.Contains(goodbye, "released 1 container ("+names[1]+")") {
		t.Errorf("it says:\n%s\nwhy, before:\n%s", goodbye, why)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("it does not end")
	}
	for _, name := range names { // their GPU ended with it, so that they may be gone
		paused := func() bool {
			c, err := docker.ContainerInspect(t.Context(), name)
			return err == nil && c.State.Paused
		}
		// Nobody is left who would release it. Docker may say "paused" a moment too long.
		for limit := time.Now().Add(30 * time.Second); paused(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(limit) {
				t.Errorf("%s is still paused", name)
				break
			}
		}
	}
}

// Where Podman is the only engine, or a docker context has another socket, nobody needs to name it.
func TestSimRunFindsTheEngine(t *testing.T) {
	for _, tt := range []struct{ there, env, context, want string }{
		{"/run/podman/podman.sock", "", "", "unix:///run/podman/podman.sock"},
		{"/run/podman/podman.sock", "tcp://elsewhere:2375", "", ""},
		{"/var/run/docker.sock /run/podman/podman.sock", "", "", ""},
		{"/var/run/docker.sock", "", "unix:///run/user/1000/docker.sock", "unix:///run/user/1000/docker.sock"},
		{"", "", "", ""},
	} {
		got := ""
		m := engine.Machine{Getenv: func(key string) string { return map[string]string{"DOCKER_HOST": tt.env}[key] },
			Exists: func(path string) bool { return slices.Contains(strings.Fields(tt.there), path) }, Context: func() string { return tt.context }}
		err := useEngineOfUp(m, func(_, value string) error { got = value; return nil })
		if err != nil || got != tt.want {
			t.Errorf("%s, DOCKER_HOST=%s: %q (%v), want %q", tt.there, tt.env, got, err, tt.want)
		}
	}
}

// A wrong name is said with what else could be meant; nothing is run.
func TestSimRunRefuses(t *testing.T) {
	empty := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "[]")
	}))
	defer empty.Close()
	t.Setenv(client.EnvOverrideHost, "tcp://"+empty.Listener.Addr().String()) // an engine without containers
	for _, tt := range []struct{ args, want string }{
		{"--deadline 9s --gpus all matmul", "--gpus gives the container a real GPU"},
		{"--deadline soon", "--deadline"},
		{"--require --deadline 9s", "sim run asks no actuator"},
		{"--deadline 9s --socket /nonexistent/gpu.sock", "laxity up --device=sim"},
		{"--deadline", "needs a value"},
	} {
		code, _, stderr := laxity(append([]string{"sim", "run"}, strings.Fields(tt.args)...)...)
		if code != 125 || !strings.Contains(stderr, tt.want) {
			t.Errorf("sim run %s: %d, %q; want %q", tt.args, code, stderr, tt.want)
		}
	}
	if code, stdout, _ := laxity("sim", "run", "--help"); code != exitOK || stdout != simRunHelp+"\n" {
		t.Errorf("its help: %d, %q", code, stdout)
	}
}

func TestDeadlineChanged(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	busy := &task.Snapshot{Tasks: []task.Task{
		{ContainerID: "1", Start: task.Mark{Time: now.Add(-2 * time.Second)}}, {ContainerID: "1", Start: task.Mark{Time: now.Add(-6 * time.Second)}}, {ContainerID: "2"},
	}}
	of := func(d task.Seconds, managed bool) task.Container {
		return task.Container{ID: "1", Name: "web", Spec: task.Spec{Deadline: d, Managed: managed}}
	}
	for _, tt := range []struct {
		s    *task.Snapshot
		was  task.Seconds
		c    task.Container
		want string
	}{
		{&task.Snapshot{}, 0, of(9, true), "web: deadline 9s, was none. It has no GPU task now; the next ones have it.\n"},
		{busy, 9, of(20, true), "web: deadline 20s, was 9s. That holds for its 2 unfinished tasks too: float +14.0s.\n"},
		{busy, 9, of(5, true), "web: deadline 5s, was 9s. That holds for its 2 unfinished tasks too, and is over: float -1.00s.\n"},
		{busy, 9, of(0, true), "web: deadline none, was 9s. That holds for its 2 unfinished tasks too.\n"},
		{&task.Snapshot{}, 0, of(9, false), "web: deadline 9s, was none. It has no GPU task now; the next ones have it.\n" +
			"Nobody acts on it: web has none of Laxity's labels, so Laxity only shows and counts how it fares.\nTo have its deadline kept, start it with --label laxity.deadline=9s.\n"},
	} {
		if got := deadlineChanged(tt.s, tt.was, tt.c, now); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

func TestShareChanged(t *testing.T) {
	of := func(share float64, managed bool) task.Container {
		return task.Container{ID: "1", Name: "web", Spec: task.Spec{Share: share, Managed: managed}}
	}
	sliced := state.State{Time: time.Now(), Hold: config.HoldChannels}
	for _, tt := range []struct {
		was  float64
		c    task.Container
		is   state.State
		want string
	}{
		{0, of(0.3, true), sliced, "web: share 30%, was none. It counts from now on, while others want the GPU; laxity why web says whether it can be kept.\n"},
		{0.3, of(0, true), sliced, "web: share none, was 30%. It has no promise any more: it shares the GPU as the policy says.\n"},
		{0.1, of(0.3, true), state.State{Time: time.Now(), Hold: config.HoldPause, NoChannels: "the driver is 470"},
			"web: share 30%, was 10%. It is not kept here: GPU time is not divided by slices, because the driver is 470. laxity check says what to do.\n"},
		{0, of(0.3, true), state.State{}, "web: share 30%, was none. No actuator answers (--actuator.url), so nobody may keep it.\n"},
		{0, of(0.3, false), sliced, "web: share 30%, was none.\nNobody keeps it: web has none of Laxity's labels, so Laxity does not act on it.\n" +
			"To have its share kept, start it with --label laxity.share=30%.\n"},
	} {
		if got := shareChanged(tt.was, tt.c, tt.is); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}
