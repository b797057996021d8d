package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laxity/laxity/cmd/laxity/internal/check"
	"github.com/laxity/laxity/exporter/task"
)

func writeFile(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// An exporter whose GPUs do not answer fails, whatever else this machine has; what
// answers nowhere fails only where a person said that it is there.
func TestCheck(t *testing.T) {
	if testing.Short() {
		t.Skip("it probes the kernel")
	}
	url := serve(t, task.Snapshot{Node: "n1", Health: task.Health{DeviceError: "XID 79", EngineUp: true, Sensor: task.SourceUprobe}})
	nodes := filepath.Join(t.TempDir(), "nodes.yaml")
	writeFile(t, nodes, "- {node: n1, exporter: \"http://127.0.0.1:1\"}\n", 0o600)
	code, stdout, stderr := laxity("check", "--device=sim", "--exporter.url="+url, "--prometheus.url=http://127.0.0.1:1", "--alertmanager.url=http://127.0.0.1:1", "--nodes.file="+nodes, "--json")
	var all []check.Finding
	if err := json.Unmarshal([]byte(stdout), &all); code != exitFindings || err != nil {
		t.Fatalf("code %d, %v\n%s%s", code, err, stdout, stderr)
	}
	failed := map[string]check.Finding{}
	for _, f := range all {
		if f.Level == check.Fail {
			failed[f.Area+"/"+f.Name] = f
			if f.Fix == "" || f.Means == "" {
				t.Errorf("%+v: no fix, or no meaning", f)
			}
		}
	}
	for _, want := range []string{"Exporter/GPUs", "Prometheus/running", "Alertmanager/running", "Nodes/n1"} {
		if _, ok := failed[want]; !ok {
			t.Errorf("%s does not fail: %+v", want, all)
		}
	}
	if !strings.Contains(failed["Exporter/GPUs"].Found, "XID 79") {
		t.Errorf("%+v", failed["Exporter/GPUs"])
	}
	code, stdout, _ = laxity("check", "--device=sim", "--exporter.url="+url)
	if code != exitFindings || !strings.Contains(stdout, "FAIL GPUs") || !strings.Contains(stdout, "fix the failures first") {
		t.Errorf("code %d\n%s", code, stdout)
	}
}
