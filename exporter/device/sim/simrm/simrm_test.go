package simrm_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/laxity/laxity/exporter/device/sim"
	"github.com/laxity/laxity/exporter/device/sim/simrm"
	"github.com/laxity/laxity/exporter/device/sim/simtest"
	"github.com/laxity/laxity/internal/rm"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func start(t *testing.T, pid int) uint64 {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	must(t, err)
	var n uint64
	_, err = fmt.Sscan(strings.Fields(string(stat)[strings.LastIndexByte(string(stat), ')')+1:])[19], &n)
	must(t, err)
	return n
}

func TestRealProcess(t *testing.T) {
	s := simtest.Start(t, sim.Options{Cards: []sim.Card{{Speed: sim.H200().Scaled(512).Faster(100)}}})
	m := simrm.New(s.Socket)
	must(t, m.Check(t.Context()))
	w := s.StartProcess(t, "--n", "512", "--repeat", "0")
	w.Await(t, "kernels_end")
	p := rm.Process{PID: w.PID, Start: start(t, w.PID)}
	groups, err := m.Find(t.Context(), p)
	must(t, err)
	if len(groups) != 1 || groups[0].Process != p || groups[0].GPU != s.UUIDs()[0] || len(groups[0].Channels) != 8 {
		t.Fatalf("groups %+v", groups)
	}
	must(t, m.SetSlice(t.Context(), groups[0], 500*time.Microsecond))
	if d, err := m.Slice(t.Context(), groups[0]); err != nil || d != 500*time.Microsecond {
		t.Errorf("slice %v, %v", d, err)
	}
	must(t, m.Switch(t.Context(), groups, false))
	if !s.Off(w.PID) {
		t.Error("it is on")
	}
	must(t, m.Switch(t.Context(), groups, true))
	w.Await(t, "kernels_end")

	other := groups[0]
	other.Start++
	if err := m.Switch(t.Context(), []rm.Group{other}, false); !errors.Is(err, rm.ErrGone) {
		t.Errorf("another process with this PID: %v", err)
	}
	if list, err := m.Find(t.Context(), other.Process); list != nil || err != nil {
		t.Errorf("another process with this PID: %v, %v", list, err)
	}
	other = groups[0]
	other.Handle++
	if err := m.Switch(t.Context(), []rm.Group{other}, false); !errors.Is(err, rm.ErrChanged) {
		t.Errorf("another group: %v", err)
	}
}

func TestNobodyAnswers(t *testing.T) {
	m := simrm.New("/nonexistent")
	if err := m.Check(t.Context()); err == nil {
		t.Error("want an error")
	}
	s := simtest.Start(t, sim.Options{Channels: sim.ChannelCost{Find: time.Hour}})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := simrm.New(s.Socket).Find(ctx, rm.Process{PID: os.Getpid()}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a call that hangs: %v", err)
	}
}

// A tenant has the socket, and is root in its container; it must not switch others off.
func TestNoTenantMayManage(t *testing.T) {
	s := simtest.Start(t, sim.Options{})
	for _, first := range []string{"laxity-sim 1 tenant", "laxity-sim 1 monitor"} {
		conn, err := net.Dial("unix", s.Socket)
		must(t, err)
		fmt.Fprintf(conn, "%s\nswitch %d 0\n", first, os.Getpid())
		answers := make([]byte, 200)
		must(t, conn.SetDeadline(time.Now().Add(time.Minute)))
		var text string
		for strings.Count(text, "\n") < 2 {
			n, err := conn.Read(answers)
			must(t, err)
			text += string(answers[:n])
		}
		if !strings.Contains(text, "err protocol") {
			t.Errorf("%s: %q", first, text)
		}
		conn.Close()
	}
	other, err := net.Dial("unix", s.Socket) // this process is the tenant to act on
	must(t, err)
	t.Cleanup(func() { other.Close() })
	if said, err := say(other, "laxity-sim 1 tenant", "open 0"); err != nil || len(said) != 2 || said[1] != "ok" {
		t.Fatal(said, err)
	}
	docker := simtest.Docker(t)
	self, err := os.Executable()
	must(t, err)
	created, err := docker.ContainerCreate(t.Context(), &container.Config{
		Image: simtest.Image(t, docker), Entrypoint: []string{"/self", "-test.run=^$"},
		Env: []string{"LAXITY_TEST_MANAGE=/sim/gpu.sock", fmt.Sprintf("LAXITY_TEST_OTHER=%d", os.Getpid())},
	}, &container.HostConfig{Binds: []string{self + ":/self:ro", s.Socket[:strings.LastIndexByte(s.Socket, '/')] + ":/sim"}, NetworkMode: "none"}, nil, nil, "")
	must(t, err)
	t.Cleanup(func() {
		must(t, docker.ContainerRemove(context.Background(), created.ID, container.RemoveOptions{Force: true}))
	})
	must(t, docker.ContainerStart(t.Context(), created.ID, container.StartOptions{}))
	ended, failed := docker.ContainerWait(t.Context(), created.ID, container.WaitConditionNotRunning)
	select {
	case end := <-ended:
		if end.StatusCode != refused {
			t.Errorf("a container got exit code %d, want %d: refused", end.StatusCode, refused)
		}
	case err := <-failed:
		t.Fatal(err)
	}
}

const refused = 77

// TestMain is the container of TestNoTenantMayManage too.
func TestMain(m *testing.M) {
	if socket := os.Getenv("LAXITY_TEST_MANAGE"); socket != "" {
		var e simrm.Error
		if err := simrm.New(socket).Check(context.Background()); !errors.As(err, &e) || e.Code != "permission" {
			os.Exit(1)
		}
		os.Exit(actOn(socket, os.Getenv("LAXITY_TEST_OTHER")))
	}
	os.Exit(m.Run())
}

// actOn tries each step of the checkpoint API on another tenant, and on itself.
func actOn(socket, other string) (code int) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return 2
	}
	defer conn.Close()
	said, err := say(conn, "laxity-sim 1 tenant", "state "+other, "lock "+other+" 1000", "checkpoint "+other, "restore "+other, "unlock "+other)
	if err != nil || len(said) != 6 || said[0] != "ok 1" {
		return 3
	}
	for i, answer := range said[1:] {
		if !strings.HasPrefix(answer, "err permission") {
			return 10 + i
		}
	}
	return refused
}

// say sends lines and returns the answers.
func say(conn net.Conn, lines ...string) (answers []string, err error) {
	from := bufio.NewReader(conn)
	for _, line := range lines {
		if _, err := fmt.Fprintln(conn, line); err != nil {
			return answers, err
		}
		answer, err := from.ReadString('\n')
		if err != nil {
			return answers, err
		}
		answers = append(answers, strings.TrimSpace(answer))
	}
	return answers, nil
}
