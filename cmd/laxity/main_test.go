package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/cmd/internal/swaphelper"
	"github.com/laxity/laxity/cmd/internal/view"
	"github.com/laxity/laxity/exporter/task"
)

// The programs that `laxity up` starts are itself: here that is this test.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "guardian" || os.Args[1] == "up" || os.Args[1] == swaphelper.Name) {
		main()
	}
	standingPatience, completionPatience = time.Minute, time.Minute // however busy this machine is
	os.Exit(m.Run())
}

// laxity runs the program and returns its exit code and what it printed.
func laxity(args ...string) (code int, stdout, stderr string) {
	return as("laxity", args...)
}

func as(name string, args ...string) (code int, stdout, stderr string) {
	var out, errs strings.Builder
	code = realMain(append([]string{name}, args...), &out, &errs)
	return code, out.String(), errs.String()
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"--no-such-flag"}, {"nonsense"}, {"up", "--policy=random"}, {"demo", "--device=tpu"}, {"deadline", "web"},
		{"nodes", "--deadline=abc"}, {"place", "--count=0"}, {"deadline", "web", "abc"}, {"share", "web", "300%"}, {"up", "--batch-floor=2"}, {"--log.level=warn", "run", "IMAGE"}} {
		code, _, stderr := laxity(args...)
		if code != exitUsage || !strings.Contains(stderr, "--help") {
			t.Errorf("laxity %v: code %d, %q; want %d and a word about --help", args, code, stderr, exitUsage)
		}
	}
}

func TestUsageNamesTheFlag(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"up", "--share=half"}, "laxity: --share=half: write one of one, p3, adaptive; see 'laxity up --help'\n"},
		{[]string{"demo", "--device", "tpu"}, "laxity: --device=tpu: write one of auto, nvml, sim; see 'laxity demo --help'\n"},
		{[]string{"completion", "tcsh"}, "laxity: tcsh: write one of bash, zsh, fish; see 'laxity completion --help'\n"},
		{[]string{"up", "--late=5"}, "laxity: --late=5: write a duration such as 5s; see 'laxity up --help'\n"},
		{[]string{"up", "--interval=0s"}, "laxity: --interval=0s: write a duration longer than 0, such as 5s; see 'laxity up --help'\n"},
		{[]string{"place", "--count", "x"}, "laxity: --count=x: write a number; see 'laxity place --help'\n"},
		{[]string{"pause", "web", "--actuator.url=foo"}, "laxity: --actuator.url=foo: write an address such as http://127.0.0.1:9871; see 'laxity pause --help'\n"},
		{[]string{"why", "web", "--actuator.url=foo"}, "laxity: --actuator.url=foo: write an address such as http://127.0.0.1:9871; see 'laxity why --help'\n"},
		{[]string{"deadline", "web"}, "laxity: required argument 'deadline' not provided; see 'laxity deadline --help'\n"},
	} {
		if _, _, stderr := laxity(tt.args...); stderr != tt.want {
			t.Errorf("laxity %v: %q; want %q", tt.args, stderr, tt.want)
		}
	}
}

func TestHelpTeaches(t *testing.T) {
	code, stdout, _ := laxity("--help")
	for _, want := range []string{"laxity.deadline=9s", "Exit codes", "up", "demo", "ps", "top"} {
		if code != exitOK || !strings.Contains(stdout, want) {
			t.Errorf("--help: code %d, without %q", code, want)
		}
	}
	for _, command := range commands(t) {
		code, stdout, stderr := laxity(command, "--help")
		if text := stdout + stderr; code != exitOK || !regexp.MustCompile(`(?m)^\s+(sudo |source <\()?laxity `+command+`\b`).MatchString(text) {
			t.Errorf("%s --help: code %d, no example in\n%s", command, code, text)
		}
	}
	_, listed, _ := strings.Cut(stdout, "Commands:")
	for line := range strings.Lines(listed) {
		if _, help, ok := strings.Cut(strings.TrimSpace(line), "  "); ok && !strings.HasSuffix(help, ".") && !strings.HasSuffix(help, "?") {
			t.Errorf("a command's line does not end a sentence: %q", line)
		}
	}
	if n := strings.Count(stdout, "usage: "); n != 1 {
		t.Errorf("--help prints itself %d times", n)
	}
	if code, stdout, stderr := laxity("--version"); code != exitOK || !strings.HasPrefix(stdout, "laxity ") || strings.Count(stdout+stderr, "\n") != 1 {
		t.Errorf("--version: code %d, %q", code, stdout+stderr)
	}
}

// commands are those that a person sees.
func commands(t *testing.T) (names []string) {
	t.Helper()
	for _, name := range completed(t, "") {
		if name != "help" {
			names = append(names, name)
		}
	}
	if len(names) < 12 {
		t.Fatalf("commands: %v", names)
	}
	return names
}

func serve(t *testing.T, s task.Snapshot) string {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/tasks", func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(s)
		if r.FormValue("watch") != "" {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

func TestPS(t *testing.T) {
	url := serve(t, task.Snapshot{Health: task.Health{DeviceUp: true, EngineError: "no socket"}, Containers: []task.Container{{ID: "1", Name: "web", Spec: task.Spec{Managed: true, Deadline: 9}}},
		Tasks: []task.Task{{ContainerID: "1", State: task.Paused, GPUs: []string{"GPU-a"}, Deadline: time.Now().Add(time.Minute)}}})
	code, stdout, stderr := laxity("ps", "--exporter.url="+url)
	const trouble = "container engine does not answer, containers are as last seen: no socket\n"
	if code != exitOK || !strings.Contains(stdout, "web        9s        paused") || stderr != trouble {
		t.Errorf("ps: code %d\n%s%s", code, stdout, stderr)
	}
	code, stdout, stderr = laxity("ps", "--json", "--exporter.url="+url)
	if stderr != trouble {
		t.Errorf("ps --json: %q", stderr)
	}
	var rows []map[string]any
	if err := json.Unmarshal([]byte(stdout), &rows); code != exitOK || err != nil || rows[0]["state"] != "paused" {
		t.Errorf("ps --json: code %d, %v, %s", code, err, stdout)
	}
}

// What the actuator knows of GPU memory is shown where it answers, and missed only
// where it was asked for by address.
func TestPSWithMemory(t *testing.T) {
	exporter := serve(t, task.Snapshot{GPUs: []task.GPU{{UUID: "GPU-a"}},
		Containers: []task.Container{{ID: "1", Name: "web", Spec: task.Spec{Managed: true, GPUMemory: 4 << 30}, MemoryUsed: map[string]uint64{"GPU-a": 2 << 30}}},
		Tasks:      []task.Task{{ContainerID: "1", State: task.Running, GPUs: []string{"GPU-a"}}}})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/state", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(state.State{Containers: []state.Container{{ID: "1", MemoryWaits: "another holds it",
			MemoryWaitGPU: "GPU-a", MemoryWaitSeconds: 3, Memory: []state.Memory{{GPU: "GPU-a", Share: 1 << 30, Lent: 1 << 30}}}}})
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	for _, command := range [][]string{{"ps"}, {"top", "--once"}} {
		args := slices.Concat(command, []string{"--exporter.url=" + exporter})
		code, stdout, stderr := laxity(append(args, "--actuator.url="+server.URL)...)
		if code != exitOK || !strings.Contains(stdout, "2.00GiB  4.00GiB  waits 3s") {
			t.Errorf("%v: code %d\n%s%s", command, code, stdout, stderr)
		}
		code, stdout, _ = laxity(append(args, "--json", "--actuator.url="+server.URL)...)
		var rows []view.Row
		want := view.Standing{Share: 1 << 30, Lent: 1 << 30, Waits: "another holds it", WaitSeconds: 3}
		if err := json.Unmarshal([]byte(stdout), &rows); code != exitOK || err != nil || rows[0].Standing != want || rows[0].Limit != 4<<30 {
			t.Errorf("%v --json: code %d, %v, %s", command, code, err, stdout)
		}
		if code, _, stderr := laxity(append(args, "--actuator.url=http://127.0.0.1:1")...); code != exitFailure || !strings.Contains(stderr, "actuator") {
			t.Errorf("%v with an actuator that does not answer: code %d, %q", command, code, stderr)
		}
		t.Setenv(actuatorEnv, "http://127.0.0.1:1")
		if code, _, stderr := laxity(args...); code != exitFailure || !strings.Contains(stderr, "actuator") {
			t.Errorf("%v with one of the environment that does not answer: code %d, %q", command, code, stderr)
		}
		t.Setenv(actuatorEnv, "")
		if code, stdout, stderr := laxity(args...); code != exitOK || !strings.Contains(stdout, "2.00GiB  4.00GiB") {
			t.Errorf("%v without an actuator: code %d\n%s%s", command, code, stdout, stderr)
		}
	}
}

func TestTopOnce(t *testing.T) {
	url := serve(t, task.Snapshot{Health: task.Health{DeviceUp: true, EngineUp: true},
		Containers: []task.Container{{ID: "1", Name: "web", Spec: task.Spec{Managed: true, Deadline: 9}}}})
	code, stdout, stderr := laxity("top", "--once", "--exporter.url="+url)
	if code != exitOK || !strings.Contains(stdout, "web") || strings.Contains(stdout, "\x1b") {
		t.Errorf("top --once: code %d\n%q%s", code, stdout, stderr)
	}
	code, stdout, _ = laxity("top", "--once", "--json", "--exporter.url="+url)
	var rows []map[string]any
	if err := json.Unmarshal([]byte(stdout), &rows); code != exitOK || err != nil || len(rows) != 1 {
		t.Errorf("top --once --json: code %d, %v, %s", code, err, stdout)
	}
}

func TestExporterNotRunning(t *testing.T) {
	for _, args := range [][]string{{"ps"}, {"top"}, {"deadline", "web", "5s"}, {"share", "web", "30%"}} {
		code, _, stderr := laxity(append(args, "--exporter.url=http://127.0.0.1:1")...)
		if code != exitFailure || !strings.Contains(stderr, "running") {
			t.Errorf("%v without an exporter: code %d, %q; want a hint", args, code, stderr)
		}
	}
	if code, _, stderr := laxity("ps", "--exporter.url=nonsense"); code != exitUsage || !strings.Contains(stderr, "http://127.0.0.1:9870") {
		t.Errorf("a bad URL: code %d, %q; want an example", code, stderr)
	}
}

func TestDeadlineIsCheckedBeforeItIsSent(t *testing.T) {
	code, _, stderr := laxity("deadline", "web", "soon")
	if code != exitUsage || !strings.Contains(stderr, "9s") {
		t.Errorf("code %d, %q; want an example of a deadline", code, stderr)
	}
}

func TestUpSaysWhatIsMissing(t *testing.T) {
	if _, err := os.Stat("/dev/nvidiactl"); err == nil {
		t.Skip("this machine has an NVIDIA driver")
	}
	code, _, stderr := laxity("up", "--state-dir="+t.TempDir())
	if code != exitFailure || !strings.Contains(stderr, "install the NVIDIA driver") || !strings.Contains(stderr, "--device=sim") {
		t.Errorf("up without a GPU: code %d, %q; want what to install and what to try", code, stderr)
	}
}

func TestUpNamesTheStateFolder(t *testing.T) {
	code, _, stderr := laxity("up", "--device=sim", "--state-dir=/dev/null/laxity")
	if code != exitFailure || !strings.Contains(stderr, "--state-dir") {
		t.Errorf("a state folder that cannot be made: code %d, %q; want the flag", code, stderr)
	}
}

func TestUpRefusesBadRules(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.yml")
	if err := os.WriteFile(bad, []byte("groups:\n- name: x\n  rules:\n  - alert: A\n    expr: sum(\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, stderr := laxity("up", "--device=sim", "--rules="+bad, "--state-dir="+t.TempDir())
	if code != exitFailure || !strings.Contains(stderr, "bad.yml") {
		t.Errorf("a bad rules file: code %d, %q; want its name", code, stderr)
	}
}

func TestDemoWithoutDocker(t *testing.T) {
	code, _, stderr := laxity("demo", "--device=sim", "--docker.host=unix:///nonexistent/docker.sock")
	if code != exitFailure || !strings.Contains(stderr, "Docker") || !strings.Contains(stderr, "running") {
		t.Errorf("demo without Docker: code %d, %q; want a hint", code, stderr)
	}
}
