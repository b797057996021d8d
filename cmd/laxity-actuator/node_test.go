package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/enforce/enforcetest/realdocker"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/webhook"
	"github.com/laxity/laxity/exporter/task"
	daemons "github.com/laxity/laxity/internal/daemon"
)

const gpu = "GPU-e2e"

// node is a Docker engine with real containers, a stand-in for the exporter that
// says they contend for a GPU, and the actuator as its own process.
type node struct {
	*testing.T
	docker   *realdocker.Engine
	exporter *httptest.Server
	dir      string // state folder
	locks    string // where it finds other actuators
	binary   string
	address  string
	cmd      *exec.Cmd
	log      *logFile

	mu    sync.Mutex
	seq   uint64
	boxes []task.Container
	tasks []task.Task
	cut   chan struct{}
}

// logFile keeps what the process writes, for a failing test.
type logFile struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logFile) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newNode(t *testing.T) *node {
	t.Helper()
	return newNodeOn(t, realdocker.New(t))
}

// newNodeOn is a node with this engine.
func newNodeOn(t *testing.T, engine *realdocker.Engine) *node {
	t.Helper()
	n := &node{T: t, docker: engine, dir: t.TempDir(), locks: t.TempDir(), cut: make(chan struct{}), log: &logFile{}}
	n.binary = filepath.Join(t.TempDir(), "laxity-actuator")
	if out, err := exec.Command("go", "build", "-o", n.binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	n.exporter = httptest.NewServer(http.HandlerFunc(n.serveTasks))
	t.Cleanup(func() {
		close(n.cut)
		n.exporter.Close()
	})
	t.Cleanup(func() {
		if t.Failed() {
			guardian, _ := os.ReadFile(filepath.Join(n.dir, "guardian.log"))
			t.Logf("actuator:\n%s\nguardian:\n%s", n.log, guardian)
		}
	})
	return n
}

// serveTasks is the exporter: facts of the test, paused as the engine says.
func (n *node) serveTasks(w http.ResponseWriter, r *http.Request) {
	for {
		_ = json.NewEncoder(w).Encode(n.snapshot())
		if r.URL.Query().Get("watch") == "" {
			return
		}
		_ = http.NewResponseController(w).Flush()
		select {
		case <-n.cut:
			return
		case <-r.Context().Done():
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (n *node) snapshot() *task.Snapshot {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.seq++
	s := &task.Snapshot{
		Sequence: n.seq, Time: time.Now(), Node: "e2e", Tasks: slices.Clone(n.tasks),
		GPUs:   []task.GPU{{UUID: gpu, MemoryTotal: 100, Utilization: 1}},
		Health: task.Health{DeviceUp: true, EngineUp: true},
	}
	for _, c := range n.boxes {
		c.Paused = n.docker.Paused(c.ID)
		s.Containers = append(s.Containers, c)
	}
	return s
}

// tenant starts a container with a GPU task, younger than those before.
func (n *node) tenant() string {
	n.Helper()
	id, name := n.docker.Run(n.T, map[string]string{"laxity.deadline": "9s"})
	n.mu.Lock()
	defer n.mu.Unlock()
	n.boxes = append(n.boxes, task.Container{ID: id, Name: name, Spec: task.Spec{Managed: true, Deadline: 9}})
	n.tasks = append(n.tasks, task.Task{ID: "task-" + id, PID: len(n.boxes), Container: name, ContainerID: id, GPUs: []string{gpu},
		State: task.Running, Start: task.Mark{Time: time.Now()}})
	return id
}

// end finishes a container's task; remove takes the container away as well.
func (n *node) end(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.tasks = slices.DeleteFunc(n.tasks, func(t task.Task) bool { return t.ContainerID == id })
}

func (n *node) remove(id string) {
	n.docker.Remove(n.T, id)
	n.end(id)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.boxes = slices.DeleteFunc(n.boxes, func(c task.Container) bool { return c.ID == id })
}

// start runs the actuator, with its own guardian.
func (n *node) start(args ...string) {
	n.Helper()
	n.launch(args...)
	n.await("the actuator is ready", func() bool {
		resp, err := http.Get("http://" + n.address + "/-/ready")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp.StatusCode == http.StatusOK || strings.Contains(string(body), "engine") // away, or another's
	})
}

// launch is start without awaiting that it is ready.
func (n *node) launch(args ...string) {
	n.Helper()
	free, err := daemons.FreeAddresses(n.Context(), 1)
	if err != nil {
		n.Fatal(err)
	}
	n.address = free[0]
	args = append([]string{"--exporter=" + n.exporter.URL, "--state-dir=" + n.dir, "--web.listen-address=" + n.address, "--lock-dir=" + n.locks}, args...)
	if !slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--policy=") }) {
		args = append(args, "--policy=fifo")
	}
	n.cmd = exec.Command(n.binary, args...)
	n.cmd.Stderr = n.log
	if err := n.cmd.Start(); err != nil {
		n.Fatal(err)
	}
	cmd := n.cmd
	n.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		n.await("the guardian has ended too", func() bool { return !n.guarded() })
	})
}

// guarded reports whether a guardian of this node is there. It may have been started a moment before
// the actuator was killed, and hold no lock yet.
func (n *node) guarded() bool {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is well-formed
	return slices.ContainsFunc(all, func(path string) bool {
		text, err := os.ReadFile(path) //nolint:gosec // a process's own
		args := strings.Split(string(text), "\x00")
		return err == nil && slices.Contains(args, "guardian") && slices.Contains(args, "--state-dir="+n.dir)
	})
}

// awaitLimit is generous: it is for a test that hangs, not for a slow machine.
const awaitLimit = 60 * time.Second

func (n *node) await(what string, ok func() bool) {
	n.Helper()
	for deadline := time.Now().Add(awaitLimit); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			n.Fatalf("waited in vain until %s", what)
		}
	}
}

func (n *node) awaitPaused(id string, paused bool) {
	n.Helper()
	n.await(fmt.Sprintf("%.12s is paused = %v", id, paused), func() bool { return n.docker.Paused(id) == paused })
}

func (n *node) post(path, body string) (int, string) {
	n.Helper()
	resp, err := http.Post("http://"+n.address+path, "application/json", strings.NewReader(body))
	if err != nil {
		n.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

func (n *node) contention(status string) {
	n.Helper()
	b, _ := json.Marshal(webhook.Message{Version: "4", Alerts: []webhook.Alert{{
		Status: status, StartsAt: time.Unix(1_700_000_000, 0), Fingerprint: "f",
		Labels: map[string]string{"alertname": "GPUContention", "action": "arbitrate", "node": "e2e", "gpu": gpu},
	}}})
	if code, body := n.post("/api/v1/alerts", string(b)); code != http.StatusOK {
		n.Fatalf("%d %s", code, body)
	}
}

func get[T any](n *node, path string) (v T) {
	n.Helper()
	resp, err := http.Get("http://" + n.address + path)
	if err != nil {
		n.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&v); err != nil {
		n.Fatal(err)
	}
	return v
}

func (n *node) onRecord() int {
	j, err := journal.Open(n.dir)
	if err != nil {
		n.Fatal(err)
	}
	holds, err := j.List()
	if err != nil {
		n.Fatal(err)
	}
	return len(holds)
}
