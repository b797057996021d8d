package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/needtest"
)

func TestPlugin(t *testing.T) {
	code, stdout, _ := as("docker-laxity", "docker-cli-plugin-metadata")
	var metadata map[string]string
	if err := json.Unmarshal([]byte(stdout), &metadata); code != exitOK || err != nil || metadata["SchemaVersion"] != "0.1.0" || metadata["Vendor"] == "" {
		t.Errorf("metadata: code %d, %v, %q", code, err, stdout)
	}
	if code, _, stderr := as("docker-laxity", "laxity", "nonsense"); code != exitUsage || !strings.Contains(stderr, "nonsense") {
		t.Errorf("docker laxity nonsense: code %d, %q", code, stderr)
	}
	if code, stdout, _ := as("docker-laxity", "--version"); code != exitOK || !strings.HasPrefix(stdout, "laxity ") {
		t.Errorf("docker-laxity by itself: code %d, %q", code, stdout)
	}
}

// The Tab key runs no command: laxity off would release everything.
func TestPluginCompletes(t *testing.T) {
	t.Setenv("LAXITY_EXPORTER_URL", serve(t, task.Snapshot{Containers: []task.Container{{Name: "web"}}}))
	for _, tt := range []struct {
		words []string
		want  string
	}{
		{[]string{""}, "off"},
		{[]string{"of"}, "off"},
		{[]string{"off", ""}, ""},
		{[]string{"off", "--state-dir=/nonexistent"}, ""},
		{[]string{"pause", ""}, "web"},
		{[]string{"run", "--dead"}, "--deadline"},
		{[]string{"sim", "run", "ma"}, "matmul"},
		{[]string{"completion", "laxity", ""}, ""},
	} {
		for _, ask := range []string{"__complete", "__completeNoDesc"} {
			code, lines, stderr := asked(t, append([]string{"docker-laxity", ask, "laxity"}, tt.words...)...)
			if code != exitOK || stderr != "" || lines[len(lines)-1] != ":0" || tt.want != "" && !slices.Contains(lines, tt.want) {
				t.Errorf("%s %q: code %d, %q, %q", ask, tt.words, code, lines, stderr)
			}
		}
	}
	if _, lines, _ := asked(t, "docker-laxity", "__complete"); slices.Contains(lines, "off") {
		t.Errorf("nothing to complete: %q", lines)
	}
}

// Docker hands its global options on to the plugin.
func TestPluginOptions(t *testing.T) {
	for in, want := range map[string]string{
		"laxity ps -a":                              " | laxity ps -a",
		"--context gpu2 laxity off":                 "--context=gpu2 | laxity off",
		"--context laxity laxity ps":                "--context=laxity | laxity ps",
		"-c laxity --log-level=debug laxity ps":     "--context=laxity --log-level=debug | laxity ps",
		"-Htcp://a:1 -D --tls laxity ps":            "--host=tcp://a:1 -D --tls | laxity ps",
		"-DH tcp://a:1 laxity ps":                   "--host=tcp://a:1 | laxity ps",
		"-H=tcp://a:1 --tlskey laxity laxity run i": "--host=tcp://a:1 --tlskey=laxity | laxity run i",
		"--context": "--context= | ",
	} {
		options, rest := dockerOptions(strings.Fields(in))
		if got := strings.Join(options, " ") + " | " + strings.Join(rest, " "); got != want {
			t.Errorf("docker %s: %s, want %s", in, got, want)
		}
	}
	for _, options := range []string{"--context gpu2", "-H tcp://gpu-2:2376", "--host=tcp://gpu-2:2376", "-cgpu2"} {
		for _, command := range []string{"off --state-dir=/nonexistent", "ps", "demo", "up --device=sim", "check"} {
			code, _, stderr := as("docker-laxity", slices.Concat(strings.Fields(options), []string{"laxity"}, strings.Fields(command))...)
			if code != exitUsage || !strings.Contains(stderr, "--docker.host") {
				t.Errorf("docker %s laxity %s: code %d, %q", options, command, code, stderr)
			}
		}
	}
	if code, stdout, _ := as("docker-laxity", "--context", "gpu2", "laxity", "--help"); code != exitOK || !strings.Contains(stdout, "usage: ") {
		t.Errorf("--help: code %d, %q", code, stdout)
	}
}

// sim run uses the engine of docker's options, also to look for the GPU.
func TestSimRunTakesDockersOptions(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "docker"), "#!/bin/sh\necho unix:///nonexistent/of-context.sock\n", 0o755)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for options, want := range map[string]string{
		"--context gpu2":                    "/nonexistent/of-context.sock",
		"-H unix:///nonexistent/named.sock": "/nonexistent/named.sock",
	} {
		args := slices.Concat(strings.Fields(options), []string{"laxity", "sim", "run", "--deadline=9s", "--socket=/nonexistent/gpu.sock"})
		if code, _, stderr := as("docker-laxity", args...); code != 125 || !strings.Contains(stderr, want) {
			t.Errorf("docker %s laxity sim run: code %d, %q", options, code, stderr)
		}
	}
}

// The options that take a value are those of the docker that is installed.
func TestValuedOptions(t *testing.T) {
	docker, err := exec.LookPath("docker")
	if err != nil {
		needtest.Docker.Skip(t, "no docker command to compare with")
	}
	out, err := exec.CommandContext(t.Context(), docker, "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	_, global, _ := strings.Cut(string(out), "Global Options:")
	options := regexp.MustCompile(`(?m)^ +(?:-(\w), )?--([a-z-]+)( string| list)? `).FindAllStringSubmatch(global, -1)
	if len(options) < 10 {
		t.Fatalf("%d options in\n%s", len(options), out)
	}
	for _, o := range options {
		for _, name := range o[1:3] {
			if want := o[3] != ""; name != "" && (valued[name] == o[2]) != want {
				t.Errorf("%s takes a value: %v", name, want)
			}
		}
	}
}
