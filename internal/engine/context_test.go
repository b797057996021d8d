package engine_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/laxity/laxity/internal/engine"
)

// The folders of two contexts, named by the SHA-256 of the contexts' names.
const (
	rootless = "contexts/meta/12b961af5feb3e9d39f93b2cefb9a1a944f18d02cca0cac2f04f5a982240605f"
	far      = "contexts/meta/512eea46ceb3921dff4363c7069d89d4964d1d9fccaa0f411851a7aa60a5c868"
)

func TestContextInUse(t *testing.T) {
	for name, tt := range map[string]struct {
		config, env, dockerHost string
		want                    string
	}{
		"none":              {},
		"in use":            {config: `{"currentContext": "rootless"}`, want: "unix:///run/user/1000/docker.sock"},
		"by environment":    {config: `{"currentContext": "far"}`, env: "rootless", want: "unix:///run/user/1000/docker.sock"},
		"DOCKER_HOST first": {env: "rootless", dockerHost: "unix:///x", want: "unix:///x"},
		"another machine's": {env: "far"},
		"default":           {config: `{"currentContext": "rootless"}`, env: "default"},
		"unknown":           {env: "gone"},
		"no JSON":           {config: "{"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("DOCKER_CONFIG", dir)
			t.Setenv("DOCKER_CONTEXT", tt.env)
			t.Setenv("DOCKER_HOST", tt.dockerHost)
			write(t, filepath.Join(dir, "config.json"), tt.config)
			write(t, filepath.Join(dir, rootless, "meta.json"), `{"Name":"rootless","Metadata":{},"Endpoints":{"docker":{"Host":"unix:///run/user/1000/docker.sock","SkipTLSVerify":false}}}`)
			write(t, filepath.Join(dir, far, "meta.json"), `{"Name":"far","Endpoints":{"docker":{"Host":"ssh://far"}}}`)
			got, _ := engine.Choice{Kind: engine.Docker}.Resolve(engine.This)
			if got.DockerHost != tt.want {
				t.Errorf("%q, want %q", got.DockerHost, tt.want)
			}
		})
	}
}

// Without a home there is no docker context: one in the working directory may be anybody's.
func TestContextWithoutHome(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, name := range []string{"HOME", "DOCKER_CONFIG", "DOCKER_CONTEXT", "DOCKER_HOST"} {
		t.Setenv(name, "")
	}
	write(t, filepath.Join(dir, ".docker", "config.json"), `{"currentContext": "rootless"}`)
	write(t, filepath.Join(dir, ".docker", rootless, "meta.json"), `{"Endpoints":{"docker":{"Host":"unix:///tmp/evil.sock"}}}`)
	if got, how := (engine.Choice{Kind: engine.Docker}).Resolve(engine.This); got.DockerHost != "" {
		t.Errorf("%q, %s", got.DockerHost, how)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
