package run_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/admission"
	"github.com/laxity/laxity/actuator/nodes"
	"github.com/laxity/laxity/actuator/placement/api"
	"github.com/laxity/laxity/cmd/laxity/internal/run"
	"github.com/laxity/laxity/internal/enginetest"
	"github.com/laxity/laxity/internal/needtest"
)

const gpu = "GPU-00000000-0000-0000-0000-000000000001"

// actuator answers as a test wants, and remembers.
type actuator struct {
	mu       sync.Mutex
	next     []api.Placement
	placeErr error
	lateErr  error   // to a request with a deadline
	checks   []error // one a call; then nil
	wanted   api.Wanted
	bound    map[string]string
	released []string
	// releaseErr is what a release fails with.
	releaseErr error
	// answer is to --require, and asked what it asked.
	answer admission.Answer
	asked  admission.Question
	gpus   []string // of the questions, in their order
}

func (a *actuator) Admission(_ context.Context, q admission.Question) (admission.Answer, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked, a.gpus = q, append(a.gpus, q.GPU)
	if a.answer.Result == "" {
		return a.answer, &api.UnreachableError{Address: "http://a", Err: errors.New("refused")}
	}
	return a.answer, nil
}

func (a *actuator) Place(_ context.Context, w api.Wanted) (api.Placed, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.wanted = w
	if a.placeErr != nil {
		return api.Placed{}, a.placeErr
	}
	if a.lateErr != nil && w.Deadline != "" {
		return api.Placed{}, a.lateErr
	}
	p := a.next[0]
	if len(a.next) > 1 {
		a.next = a.next[1:]
	}
	return api.Placed{Placements: []api.Placement{p}}, nil
}

func (a *actuator) Check(context.Context, string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.checks) == 0 {
		return nil
	}
	err := a.checks[0]
	a.checks = a.checks[1:]
	return err
}

func (a *actuator) Bind(_ context.Context, id, container string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.bound == nil {
		a.bound = map[string]string{}
	}
	a.bound[id] = container
	return nil
}

func (a *actuator) Release(_ context.Context, id string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.released = append(a.released, id)
	return a.releaseErr
}

// tool does what its arguments say.
const tool = `package main

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
)

func main() {
	switch os.Args[1] {
	case "exit":
		n, _ := strconv.Atoi(os.Args[2])
		os.Exit(n)
	case "env":
		fmt.Println(os.Getenv(os.Args[2]))
	case "wait":
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGINT, syscall.SIGTERM)
		fmt.Println("ready")
		s := <-c
		fmt.Println(s)
		os.Exit(7)
	}
}
`

var prefix = sync.OnceValue(func() string {
	b := make([]byte, 5)
	_, _ = rand.Read(b)
	return "laxity-test-" + hex.EncodeToString(b)
})

// image imports one with the tool, or skips the test.
func image(t *testing.T) string {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "docker", "version").CombinedOutput(); err != nil {
		needtest.Docker.Skipf(t, "needs a Docker engine: %v: %s", err, out)
	}
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	if err := os.WriteFile(source, []byte(tool), 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", "tool", source)
	build.Dir, build.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	code, err := os.ReadFile(filepath.Join(dir, "tool"))
	if err != nil {
		t.Fatal(err)
	}
	var root bytes.Buffer
	w := tar.NewWriter(&root)
	if err := errors.Join(w.WriteHeader(&tar.Header{Name: "tool", Mode: 0o755, Size: int64(len(code))}), write(w, code), w.Close()); err != nil {
		t.Fatal(err)
	}
	name := prefix() + ":" + strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-"))
	load := exec.CommandContext(t.Context(), "docker", "import", "-c", `ENTRYPOINT ["/tool"]`, "-", name)
	load.Stdin = &root
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("docker", "image", "rm", "-f", name).Run() })
	return name
}

func write(w *tar.Writer, b []byte) error { _, err := w.Write(b); return err }

// local is a promise on the engine of this machine, of a simulated GPU.
func local(id string) api.Placement {
	return api.Placement{ID: id, Node: "here", GPU: gpu, Local: true, Simulated: true}
}

// lines is an output that can be waited for.
type lines struct {
	mu   sync.Mutex
	b    strings.Builder
	more chan struct{}
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.Write(p)
	select {
	case l.more <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (l *lines) String() string { l.mu.Lock(); defer l.mu.Unlock(); return l.b.String() }

func (l *lines) await(t *testing.T, text string) {
	t.Helper()
	for late := time.After(time.Minute); !strings.Contains(l.String(), text); {
		select {
		case <-l.more:
		case <-late:
			t.Fatalf("it never said %q: %s", text, l)
		}
	}
}

type result struct {
	code        int
	err         error
	out, errors *lines
}

func (r result) String() string { return r.out.String() + r.errors.String() }

func start(t *testing.T, a *actuator, signals <-chan os.Signal, command string, args ...string) (result, func() result) {
	t.Helper()
	s, err := run.Parse(command, args)
	if err != nil {
		t.Fatal(err)
	}
	r := result{out: &lines{more: make(chan struct{}, 1)}, errors: &lines{more: make(chan struct{}, 1)}}
	runner := run.Runner{Docker: []string{"docker"}, Podman: run.Podman(t.Context(), nil), Placements: a, Stdout: r.out, Stderr: r.errors, Signals: signals}
	done := make(chan result, 1)
	go func() {
		got := r
		got.code, got.err = runner.Run(context.Background(), s)
		done <- got
	}()
	return r, func() result {
		select {
		case got := <-done:
			return got
		case <-time.After(time.Minute):
			t.Fatal("it never ended")
			return result{}
		}
	}
}

func do(t *testing.T, a *actuator, args ...string) result {
	t.Helper()
	_, wait := start(t, a, nil, "run", args...)
	return wait()
}

// inspect asks the engine; "" when the container is not there.
func inspect(t *testing.T, container, format string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "docker", "container", "inspect", "--format", format, container).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

func cleanup(t *testing.T, container string) {
	t.Cleanup(func() { _ = exec.Command("docker", "rm", "-f", container).Run() })
}

func TestRunsLikeDocker(t *testing.T) { enginetest.Each(t, runsLikeDocker) }

func runsLikeDocker(t *testing.T) {
	img := image(t)
	t.Run("exit code, attached", func(t *testing.T) {
		a := &actuator{next: []api.Placement{local("p1")}}
		r := do(t, a, "--deadline", "9s", "--gpu-memory", "4GiB", "--rm", "--network=none", img, "exit", "3")
		if r.code != 3 || r.err != nil || len(a.bound["p1"]) != 64 || strings.Join(a.released, " ") != "p1" {
			t.Errorf("%d, %v, bound %v, released %v: %s", r.code, r.err, a.bound, a.released, r)
		}
		if a.wanted.Deadline != "9s" || a.wanted.GPUMemory != "4GiB" || a.wanted.Image != img || a.wanted.Node != "" {
			t.Errorf("asked for %+v", a.wanted)
		}
	})
	t.Run("exit code, though the actuator is gone by then", func(t *testing.T) {
		a := &actuator{next: []api.Placement{local("p1")}, releaseErr: &api.UnreachableError{Address: "http://a", Err: errors.New("refused")}}
		r := do(t, a, "--rm", "--network=none", img, "exit", "0")
		if r.code != 0 || r.err != nil || !strings.Contains(r.errors.String(), "p1 was not released (it expires by itself)") {
			t.Errorf("%d, %v: %s", r.code, r.err, r)
		}
	})
	t.Run("the chosen GPU alone", func(t *testing.T) {
		a := &actuator{next: []api.Placement{local("p1")}}
		if r := do(t, a, "--rm", "--network=none", img, "env", "NVIDIA_VISIBLE_DEVICES"); r.code != 0 || r.out.String() != gpu+"\n" {
			t.Errorf("%d, %v: %s", r.code, r.err, r)
		}
	})
	t.Run("detached, with labels", func(t *testing.T) {
		name := prefix() + "-detached"
		cleanup(t, name)
		a := &actuator{next: []api.Placement{local("p1")}}
		r := do(t, a, "--deadline", "9s", "-d", "--name", name, "--network=none", img, "wait")
		id := strings.TrimSpace(r.out.String())
		if r.code != 0 || r.err != nil || a.bound["p1"] != id || len(a.released) != 0 {
			t.Errorf("%d, %v, bound %v, released %v: %s", r.code, r.err, a.bound, a.released, r)
		}
		if got := inspect(t, name, `{{index .Config.Labels "laxity.deadline"}} {{.State.Status}}`); got != "9s running" {
			t.Error(got)
		}
	})
	t.Run("create", func(t *testing.T) {
		name := prefix() + "-created"
		cleanup(t, name)
		a := &actuator{next: []api.Placement{local("p1")}}
		_, wait := start(t, a, nil, "create", "--deadline", "9s", "--name", name, "--network=none", img, "wait")
		if r := wait(); r.code != 0 || r.err != nil || len(a.released) != 0 || len(a.bound) != 1 {
			t.Errorf("%d, %v, %v: %s", r.code, r.err, a.released, r)
		}
		if got := inspect(t, name, "{{.State.Status}}"); got != "created" {
			t.Error(got)
		}
	})
	t.Run("a signal reaches the container", func(t *testing.T) {
		a := &actuator{next: []api.Placement{local("p1")}}
		signals := make(chan os.Signal, 1)
		r, wait := start(t, a, signals, "run", "--rm", "--network=none", img, "wait")
		r.out.await(t, "ready")
		signals <- syscall.SIGINT
		if got := wait(); got.code != 7 || !strings.Contains(got.out.String(), "interrupt") || len(a.released) != 1 {
			t.Errorf("%d, %v, released %v: %s", got.code, got.err, a.released, got)
		}
	})
	t.Run("local, without an actuator", func(t *testing.T) {
		name, file := prefix()+"-local", filepath.Join(t.TempDir(), "cid")
		cleanup(t, name)
		r := do(t, nil, "--node=local", "--deadline", "9s", "--cidfile", file, "--name", name, "--network=none", img, "exit", "4")
		if r.code != 4 || r.err != nil {
			t.Errorf("%d, %v: %s", r.code, r.err, r)
		}
		if id, err := os.ReadFile(file); err != nil || inspect(t, name, `{{.Id}} {{index .Config.Labels "laxity.deadline"}}`) != string(id)+" 9s" {
			t.Errorf("cid file: %v", err)
		}
	})
}

// What fails is said clearly, leaves no container, and gives the promise back.
func TestNothingIsLeftBehind(t *testing.T) {
	img := image(t)
	refused := &api.RefusedError{Code: 409, Failure: api.Failure{Error: "no node can take it: 0/1 nodes: 1 GPU memory short"}}
	for name, tc := range map[string]struct {
		actuator *actuator
		args     []string
		code     int
		says     string
		released int
	}{
		"an image that does not exist": {&actuator{next: []api.Placement{local("p1")}}, []string{"127.0.0.1:1/no/such/image"}, 125, "", 1},
		"a flag that docker refuses":   {&actuator{next: []api.Placement{local("p1")}}, []string{"--memory=1", img, "exit", "0"}, 125, "memory", 1},
		"a command that is not there":  {&actuator{next: []api.Placement{local("p1")}}, []string{"--entrypoint=/nothing", img}, 127, "/nothing", 1},
		"a GPU that the engine has no driver for": {
			&actuator{next: []api.Placement{{ID: "p1", Node: "here", GPU: gpu, Local: true}}}, []string{img, "exit", "0"}, 125, "device driver", 1},
		"an engine that does not answer": {
			&actuator{next: []api.Placement{{ID: "p1", Node: "far", GPU: gpu, Docker: nodes.Docker{Host: "tcp://127.0.0.1:1"}}}}, []string{img, "exit", "0"}, 125, "127.0.0.1:1", 1},
		"a node without a way to its engine": {
			&actuator{next: []api.Placement{{ID: "p1", Node: "far", GPU: gpu}}}, []string{img}, 125, "nodes.yaml", 1},
		"no room": {&actuator{placeErr: refused}, []string{img}, 125, "1 GPU memory short", 0},
		"no actuator": {&actuator{placeErr: &api.UnreachableError{Address: "http://a", Err: errors.New("refused")}}, []string{img}, 125,
			"--node=local", 0},
		"full just before, three times": {&actuator{next: []api.Placement{local("p1")}, checks: []error{refused, refused, refused}}, []string{img}, 125, "filled up 3 times", 0},
		"the actuator dies in between":  {&actuator{next: []api.Placement{local("p1")}, checks: []error{errors.New("gone")}}, []string{img}, 125, "gone", 1},
	} {
		t.Run(name, func(t *testing.T) {
			container := prefix() + "-failed"
			cleanup(t, container)
			a := tc.actuator
			r := do(t, a, append([]string{"--name", container, "--network=none"}, tc.args...)...)
			text := r.String()
			if r.err != nil {
				text += r.err.Error()
			}
			if r.code != tc.code || !strings.Contains(text, tc.says) || len(a.released) != tc.released {
				t.Errorf("code %d, released %v: %s", r.code, a.released, text)
			}
			if state := inspect(t, container, "{{.State.Status}}"); state != "" {
				t.Errorf("a container is left behind, %s", state)
			}
		})
	}
	t.Run("no place keeps its deadline", func(t *testing.T) {
		late := &api.RefusedError{Code: 409, Failure: api.Failure{Error: "0/1 nodes: 1 time short"}}
		a := &actuator{next: []api.Placement{local("p1")}, lateErr: late}
		r := do(t, a, "--deadline=9s", "--rm", "--network=none", img, "exit", "0")
		if r.code != 0 || r.err != nil || !strings.Contains(r.String(), "1 time short") || !strings.Contains(r.String(), "--require") {
			t.Errorf("it starts all the same, and says so: %d, %v: %s", r.code, r.err, r)
		}
		a = &actuator{next: []api.Placement{local("p1")}, lateErr: late}
		r = do(t, a, "--require", "--deadline=9s", "--rm", "--network=none", img, "exit", "0")
		if r.err == nil || r.code == 0 || !strings.Contains(r.err.Error(), "--node=local") || len(a.bound) > 0 {
			t.Errorf("--require: %d, %v", r.code, r.err)
		}
	})
	t.Run("full just before, and elsewhere is room", func(t *testing.T) {
		a := &actuator{next: []api.Placement{local("p1"), local("p2")}, checks: []error{refused}}
		if r := do(t, a, "--rm", "--network=none", img, "exit", "0"); r.code != 0 || r.err != nil || a.bound["p2"] == "" {
			t.Errorf("%d, %v: %v", r.code, r.err, a.bound)
		}
	})
}
