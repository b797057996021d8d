package run_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/laxity/laxity/actuator/placement/api"
	"github.com/laxity/laxity/cmd/laxity/internal/run"
	"github.com/laxity/laxity/internal/enginetest"
)

// On Podman a container that cannot have its GPU does not start: it would compute nowhere, with
// docker --gpus even without an error. What fails leaves no container, and no reservation.
func TestFailuresOnPodman(t *testing.T) {
	enginetest.Podman(t)
	img := image(t)
	for name, tc := range map[string]struct {
		promise api.Placement
		args    []string
		code    int
		says    string
	}{
		"a GPU without a CDI description": {api.Placement{ID: "p1", Node: "here", GPU: gpu, Local: true}, []string{img, "exit", "0"}, 126, "nvidia.com/gpu=" + gpu},
		"a command that is not there":     {local("p1"), []string{"--entrypoint=/nothing", img}, 127, "/nothing"},
		"an image that does not exist":    {local("p1"), []string{"127.0.0.1:1/no/such/image"}, 125, "127.0.0.1:1"},
	} {
		t.Run(name, func(t *testing.T) {
			container := prefix() + "-failed"
			cleanup(t, container)
			a := &actuator{next: []api.Placement{tc.promise}}
			r := do(t, a, append([]string{"--name", container, "--network=none"}, tc.args...)...)
			if r.code != tc.code || !strings.Contains(r.String(), tc.says) || len(a.released) != 1 {
				t.Errorf("code %d, released %v: %s, %v", r.code, a.released, r, r.err)
			}
			if state := inspect(t, container, "{{.State.Status}}"); state != "" {
				t.Errorf("a container is left behind, %s", state)
			}
		})
	}
}

// The command podman is used where the engine of this machine is Podman, and nowhere else.
func TestPodmanIsFound(t *testing.T) {
	if found := run.Podman(t.Context(), []string{"--host=unix:///nobody.sock"}); found != nil {
		t.Errorf("nobody answers: %v", found)
	}
	e := enginetest.Podman(t)
	t.Setenv("DOCKER_CONFIG", dockerContexts(t, map[string]string{"here": e.Host, "nobody": "unix:///nobody.sock", "far": "ssh://far"}))
	want := []string{"podman", "--url", e.Host}
	for _, tc := range []struct {
		inUse, contextEnv, env, options string
		want                            []string
	}{
		{"", "", e.Host, "", want},
		{"", "", "unix:///nobody.sock", "--debug --host=" + e.Host, want},
		{"", "", "unix:///nobody.sock", "", nil},
		{"", "", e.Host, "--context=other", nil},
		{"", "", e.Host, "--host=unix:///nobody.sock", nil},
		{"nobody", "", e.Host, "", want},
		{"nobody", "far", e.Host, "", want},
		{"nobody", "", "", "--host=" + e.Host, want},
		{"here", "", "", "", want},
		{"nobody", "here", "", "", want},
		{"nobody", "", "", "", nil},
		{"here", "far", "", "", nil},
		{"here", "", "", "--context=here", nil},
	} {
		use(t, tc.inUse)
		t.Setenv("DOCKER_CONTEXT", tc.contextEnv)
		t.Setenv("DOCKER_HOST", tc.env)
		if got := run.Podman(t.Context(), strings.Fields(tc.options)); !slices.Equal(got, tc.want) {
			t.Errorf("%+v: %v", tc, got)
		}
	}
}

// dockerContexts makes a DOCKER_CONFIG with contexts, by their addresses.
func dockerContexts(t *testing.T, hosts map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, host := range hosts {
		meta := filepath.Join(dir, "contexts", "meta", fmt.Sprintf("%x", sha256.Sum256([]byte(name))))
		if err := os.MkdirAll(meta, 0o700); err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf(`{"Name":%q,"Endpoints":{"docker":{"Host":%q}}}`, name, host)
		if err := os.WriteFile(filepath.Join(meta, "meta.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// use is docker context use.
func use(t *testing.T, name string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(os.Getenv("DOCKER_CONFIG"), "config.json"), fmt.Appendf(nil, `{"currentContext":%q}`, name), 0o600); err != nil {
		t.Fatal(err)
	}
}
