package check

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/laxity/laxity/actuator/undo"
	"github.com/laxity/laxity/internal/cri/critest"
	engines "github.com/laxity/laxity/internal/engine"
)

// In a pod the engine's socket is at none of the usual places: check examines the engine that the
// actuator there uses, unless a person names another one.
func TestEngineOfTheActuator(t *testing.T) {
	inPod := engines.Choice{Kind: engines.Containerd, Address: "/run/engine/containerd.sock"}
	podFiles := []string{"/run/engine", "/run/engine/containerd.sock"}
	for name, tt := range map[string]struct {
		given  engines.Choice
		env    map[string]string
		record any // an engines.Choice that is recorded, or the text of a record
		files  []string
		want   engines.Choice
		how    string // a part of it
	}{
		"recorded":           {record: inPod, files: podFiles, want: inPod, how: "the last actuator used it"},
		"CRI-O's, recorded":  {record: engines.Choice{Kind: engines.CRIO, CRIOAddress: "/run/engine/crio.sock"}, files: podFiles, want: engines.Choice{Kind: engines.CRIO, CRIOAddress: "/run/engine/crio.sock"}, how: "the last actuator used it"},
		"auto is no choice":  {given: engines.Choice{Kind: engines.Auto}, record: inPod, files: podFiles, want: inPod, how: "the last actuator used it"},
		"by flag":            {given: engines.Choice{Kind: engines.CRIO}, record: inPod, files: podFiles, want: engines.Choice{Kind: engines.CRIO, CRIOAddress: engines.CRIOSocket}},
		"by environment":     {env: map[string]string{"DOCKER_HOST": "unix:///x"}, record: inPod, files: podFiles, want: engines.Choice{Kind: engines.Docker, DockerHost: "unix:///x"}, how: "DOCKER_HOST"},
		"a container's path": {record: inPod, files: engines.Sockets[:1], want: engines.Choice{Kind: engines.Containerd, Address: engines.Sockets[0]}, how: "/run/engine/containerd.sock is not here"},
		"no record":          {files: engines.Sockets[:1], want: engines.Choice{Kind: engines.Containerd, Address: engines.Sockets[0]}, how: "is there"},
		"no JSON":            {record: "{", files: engines.Sockets[:1], want: engines.Choice{Kind: engines.Containerd, Address: engines.Sockets[0]}, how: "cannot be read"},
		"no engine":          {record: "{}", files: engines.Sockets[:1], want: engines.Choice{Kind: engines.Containerd, Address: engines.Sockets[0]}, how: "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, env := range []string{"DOCKER_HOST", "CONTAINERD_ADDRESS"} {
				t.Setenv(env, "") // RecordEngine resolves the choice on this machine
			}
			dir := t.TempDir()
			switch r := tt.record.(type) {
			case engines.Choice:
				if err := undo.RecordEngine(dir, r); err != nil {
					t.Fatal(err)
				}
			case string:
				if err := os.WriteFile(undo.EngineFile(dir), []byte(r), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			machine := engines.Machine{
				Getenv: func(name string) string { return tt.env[name] },
				Exists: func(path string) bool { return slices.Contains(tt.files, path) },
			}
			// The first folder has no record: the next one counts.
			got, how := chooseEngine(tt.given, []string{filepath.Join(dir, "none"), dir}, machine)
			if got.String() != tt.want.String() || !strings.Contains(how, tt.how) || tt.how == "" && how != "" {
				t.Errorf("%v (%s), want %v (%s)", got, how, tt.want, tt.how)
			}
		})
	}
}

func TestExaminesTheEngineOfTheActuator(t *testing.T) {
	t.Setenv("DOCKER_HOST", "")
	t.Setenv("CONTAINERD_ADDRESS", "")
	s, dir := critest.New(t), t.TempDir()
	if err := undo.RecordEngine(dir, engines.Choice{Kind: engines.CRIO, CRIOAddress: s.Address}); err != nil {
		t.Fatal(err)
	}
	found := judgeEngine(t.Context(), engines.Choice{}, []string{dir}, false)
	if f := found[0]; f.Area != "CRI-O" || f.Name != "engine" || f.Level == Fail {
		t.Errorf("%+v", found)
	}
	if f := found[len(found)-1]; f.Name != "chosen" || !strings.Contains(f.Found, undo.EngineFile(dir)) {
		t.Errorf("%+v", found)
	}
}
