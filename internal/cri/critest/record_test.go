package critest_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	own "github.com/laxity/laxity/internal/daemon/containerd"
	"github.com/laxity/laxity/internal/daemon/containerd/containerdtest"
)

var update = flag.Bool("update", false, "record the answers of containerd's CRI service again")

// What the server replays is what containerd's CRI service answers: the same fields. With -update
// the answers are recorded again. Another version of containerd may have others.
func TestRecorded(t *testing.T) {
	e := containerdtest.New(t)
	ctx := t.Context()
	pod, id, err := e.RunPod(ctx, own.Pod{
		Namespace: "team", Name: "train-0", Labels: map[string]string{"app": "train"}, Annotations: map[string]string{"laxity.dev/deadline": "9s"},
		CgroupParent: "/kubepods/besteffort/pod0b5c",
	}, own.Spec{Name: "main", Image: containerdtest.Image, Env: []string{"NVIDIA_VISIBLE_DEVICES=GPU-1"}})
	if err != nil {
		t.Fatal(err)
	}
	answers := map[string]func() (proto.Message, error){
		"version": func() (proto.Message, error) { return e.Pods.Version(ctx, &cri.VersionRequest{}) },
		"status":  func() (proto.Message, error) { return e.Pods.Status(ctx, &cri.StatusRequest{}) },
		"pods":    func() (proto.Message, error) { return e.Pods.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{}) },
		"containers": func() (proto.Message, error) {
			return e.Pods.ListContainers(ctx, &cri.ListContainersRequest{})
		},
		"container": func() (proto.Message, error) {
			return e.Pods.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: id, Verbose: true})
		},
	}
	version, err := e.Pods.Version(ctx, &cri.VersionRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var before cri.VersionResponse
	if text, err := os.ReadFile("testdata/version.json"); err != nil || protojson.Unmarshal(text, &before) != nil {
		t.Fatal("no version is recorded")
	}
	host, _ := os.Hostname()
	hidden := strings.NewReplacer(id, strings.Repeat("c", 64), pod, strings.Repeat("d", 64), filepath.Dir(e.Address), "/run/recorded", "HOSTNAME="+host, "HOSTNAME=node")
	for name, ask := range answers {
		answer, err := ask()
		if err != nil {
			t.Fatal(err)
		}
		text, err := protojson.Marshal(answer)
		if err != nil {
			t.Fatal(err)
		}
		var now bytes.Buffer
		if err := json.Indent(&now, []byte(hidden.Replace(string(text))), "", "  "); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", name+".json")
		if *update {
			if err := os.WriteFile(path, append(now.Bytes(), '\n'), 0o644); err != nil { //nolint:gosec // it is for everybody
				t.Fatal(err)
			}
		}
		recorded, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if was, is := fields(t, recorded), fields(t, now.Bytes()); !slices.Equal(was, is) && (*update || version.GetRuntimeVersion() == before.GetRuntimeVersion()) {
			t.Errorf("%s: recorded fields %v, containerd answers %v (-update records again)", name, was, is)
		}
	}
}

// fields are the paths of an answer's fields, with what is text inside of its info.
func fields(t *testing.T, text []byte) []string {
	t.Helper()
	all := map[string]bool{}
	var walk func(at string, value any)
	walk = func(at string, value any) {
		switch value := value.(type) {
		case map[string]any:
			for key, inner := range value {
				walk(at+"."+key, inner)
			}
		case []any:
			for _, inner := range value {
				walk(at+"[]", inner)
			}
		case string:
			var inner map[string]any
			if at == ".info.info" && json.Unmarshal([]byte(value), &inner) == nil {
				for key := range inner { // the specification depends on the machine
					all[at+"."+key] = true
				}
				return
			}
			all[at] = true
		default:
			all[at] = true
		}
	}
	var top any
	if err := json.Unmarshal(text, &top); err != nil {
		t.Fatal(err)
	}
	walk("", top)
	return slices.Sorted(maps.Keys(all))
}
