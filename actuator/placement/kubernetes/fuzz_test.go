package kubernetes

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Whatever annotations a pod has, its wish is within bounds or counts as not there, and the
// annotation counts before the label.
func FuzzRequestOf(f *testing.F) {
	for _, seed := range [][2]string{{"9s", "4GiB"}, {"", ""}, {"soon", "much"}, {"-1", "0"}, {"1e400", "1e30T"}, {"\x1b[2J", "\xff"}} {
		f.Add(seed[0], seed[1], "1s", "1MiB")
	}
	f.Fuzz(func(t *testing.T, deadline, memory, deadlineLabel, memoryLabel string) {
		pod := &Pod{Metadata: Metadata{
			Annotations: map[string]string{"laxity.dev/deadline": deadline, "laxity.dev/gpu-memory": memory},
			Labels:      map[string]string{"laxity.deadline": deadlineLabel, "laxity.gpu-memory": memoryLabel},
		}}
		req, ours, invalid := RequestOf(pod)
		if !(req.Deadline >= 0) || req.Deadline.Duration() > 100*365*24*time.Hour || ours != (req.Deadline > 0 || req.GPUMemory > 0) {
			t.Errorf("%+v, ours %v", req, ours)
		}
		bad := map[string]bool{}
		for _, l := range invalid {
			bad[l.Label] = true
		}
		if (req.Deadline > 0) == bad["laxity.deadline"] || (req.GPUMemory > 0) == bad["laxity.gpu-memory"] {
			t.Errorf("%+v, and cannot be read: %v", req, invalid)
		}
		pod.Metadata.Labels = nil
		if own, _, _ := RequestOf(pod); own != req {
			t.Errorf("a label counts before the annotation: %+v, %+v", req, own)
		}
	})
}

// Whatever a scheduler posts is refused, or answered about nodes that it asked about.
func FuzzQuestion(f *testing.F) {
	questions, err := filepath.Glob("testdata/*.question.json")
	if err != nil || len(questions) == 0 {
		f.Fatal(questions, err)
	}
	for _, path := range questions {
		raw, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Add([]byte(`{"Pod":{},"NodeNames":["n1","n1",""]}`))
	f.Add([]byte(`{"Pod":{"metadata":{"annotations":{"laxity.dev/deadline":"1s"}}},"Nodes":{"items":[1,null,{}]}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if w := post(t, &fakePlacer{nodes: fleet()}, body); w.Code == 200 && !json.Valid(w.Body.Bytes()) {
			t.Errorf("%q", w.Body)
		}
	})
}
