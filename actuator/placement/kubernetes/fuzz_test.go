package kubernetes

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Whatever annotations a pod has, its wish is refused or within bounds, and the
// annotation counts before the label.
func FuzzRequestOf(f *testing.F) {
	for _, seed := range [][2]string{{"9s", "4GiB"}, {"", ""}, {"soon", "much"}, {"-1", "0"}, {"1e400", "1e30T"}, {"\x1b[2J", "\xff"}} {
		f.Add(seed[0], seed[1], "1s", "1MiB")
	}
	f.Fuzz(func(t *testing.T, deadline, memory, deadlineLabel, memoryLabel string) {
		pod := &Pod{Metadata: Metadata{
			Annotations: map[string]string{"laxity.deadline": deadline, "laxity.gpu-memory": memory},
			Labels:      map[string]string{"laxity.deadline": deadlineLabel, "laxity.gpu-memory": memoryLabel},
		}}
		req, ours, err := RequestOf(pod)
		if ours != (deadline+memory+deadlineLabel+memoryLabel != "") {
			t.Errorf("ours is %v", ours)
		}
		if err != nil {
			return
		}
		if !(req.Deadline >= 0) || req.Deadline.Duration() > 100*365*24*time.Hour || (req.Deadline > 0) != (deadline+deadlineLabel != "") || (req.GPUMemory > 0) != (memory+memoryLabel != "") {
			t.Errorf("%+v", req)
		}
		pod.Metadata.Labels = nil
		if own, _, err := RequestOf(pod); err != nil || deadline != "" && own.Deadline != req.Deadline || memory != "" && own.GPUMemory != req.GPUMemory {
			t.Errorf("a label counts before the annotation: %+v, %+v, %v", req, own, err)
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
	f.Add([]byte(`{"Pod":{"metadata":{"annotations":{"laxity.deadline":"1s"}}},"Nodes":{"items":[1,null,{}]}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, path := range []string{"filter", "prioritize"} {
			w := post(t, &ranker{nodes: fleet()}, path, body)
			if w.Code == 200 && !json.Valid(w.Body.Bytes()) {
				t.Errorf("%s answers %q", path, w.Body)
			}
		}
	})
}
