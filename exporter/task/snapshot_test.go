package task_test

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/laxity/laxity/exporter/task"
)

func TestSnapshotJSONRoundTrip(t *testing.T) {
	s := task.Snapshot{
		Sequence: 7, Time: t0, Node: "n1",
		GPUs: []task.GPU{{UUID: "GPU-a", Name: "H200", MemoryTotal: 1 << 37, Utilization: 0.5}},
		Containers: []task.Container{{
			ID: strings.Repeat("a", 64), Name: "web", PID: 12,
			Spec:       task.Spec{Managed: true, Deadline: 9, Class: task.ClassDeadline, Release: task.ReleaseProcess},
			Invalid:    []task.InvalidLabel{{Label: task.LabelPause, Value: "maybe", Hint: "write allow or never"}},
			MemoryUsed: map[string]uint64{"GPU-a": 5},
		}},
		Tasks: []task.Task{{ID: "x", PID: 12, Container: "web", GPUs: []string{"GPU-a"}, State: task.Running,
			Start: task.Mark{Time: t0, Source: task.SourceUprobe, ErrorBound: 0.001}, Deadline: t0.Add(9 * time.Second)}},
		Ended: []task.Task{},
	}
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var back task.Snapshot
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(s, back) {
		t.Errorf("round trip changed the snapshot:\n%+v\n%+v", s, back)
	}
	if strings.Contains(string(b), "0001-01-01") {
		t.Errorf("a zero time was written: %s", b)
	}
}

func TestSecondsJSON(t *testing.T) {
	for text, want := range map[string]float64{
		`1.5`: 1.5, `-0.25`: -0.25, `0`: 0,
	} {
		var s task.Seconds
		if err := json.Unmarshal([]byte(text), &s); err != nil || float64(s) != want {
			t.Errorf("%s → %v, %v; want %v", text, s, err, want)
		}
		if b, err := json.Marshal(s); err != nil || string(b) != text {
			t.Errorf("%v → %s, %v; want %s", want, b, err, text)
		}
	}
	var s task.Seconds
	for _, none := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		if b, err := json.Marshal(task.Seconds(none)); err != nil || string(b) != "null" {
			t.Errorf("%v → %s, %v; want null", none, b, err)
		}
		if why := task.ReasonOf(task.Seconds(none), "why"); why != "why" {
			t.Errorf("%v has the reason %q", none, why)
		}
	}
	if err := json.Unmarshal([]byte("null"), &s); err != nil || !math.IsNaN(float64(s)) || task.ReasonOf(task.Seconds(1), "why") != "" {
		t.Errorf("null → %v, %v", s, err)
	}
	var r task.Ratio
	if b, err := json.Marshal(task.Ratio(math.NaN())); err != nil || string(b) != "null" || json.Unmarshal(b, &r) != nil || !math.IsNaN(float64(r)) {
		t.Errorf("an unknown ratio → %s, %v → %v", b, err, r)
	}
	for _, text := range []string{`"soon"`, `"+Inf"`} {
		if err := json.Unmarshal([]byte(text), &s); err == nil {
			t.Errorf("%s was taken for a number of seconds", text)
		}
	}
}

func TestSecondsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := task.Seconds(rapid.Float64().Draw(t, "seconds"))
		b, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got task.Seconds
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatal(err)
		}
		if got != want && !(math.IsNaN(float64(got)) && math.IsNaN(float64(want))) {
			t.Fatalf("%v → %s → %v", want, b, got)
		}
	})
}

func TestSecondsDurationSaturates(t *testing.T) {
	for in, want := range map[task.Seconds]time.Duration{
		1.5: 1500 * time.Millisecond, task.Seconds(math.Inf(1)): math.MaxInt64,
		task.Seconds(math.Inf(-1)): math.MinInt64, 1e300: math.MaxInt64,
	} {
		if got := in.Duration(); got != want {
			t.Errorf("%v.Duration() = %v, want %v", in, got, want)
		}
	}
	if got := task.Seconds(math.NaN()).Duration(); got != 0 {
		t.Errorf("NaN.Duration() = %v, want 0", got)
	}
}

func TestFind(t *testing.T) {
	id := strings.Repeat("ab", 32)
	s := task.Snapshot{
		GPUs:       []task.GPU{{UUID: "GPU-a"}},
		Containers: []task.Container{{ID: id, Name: "web"}},
		Tasks:      []task.Task{{ID: "1", GPUs: []string{"GPU-a"}}, {ID: "2", GPUs: []string{"GPU-b"}}, {ID: "3", GPUs: []string{"GPU-a", "GPU-b"}}},
	}
	for _, ref := range []string{"web", id, id[:12]} {
		if c, ok := s.FindContainer(ref); !ok || c.ID != id {
			t.Errorf("FindContainer(%q) = %v, %v", ref, c.ID, ok)
		}
	}
	for _, ref := range []string{"", "we", id[:11], "nobody"} {
		if _, ok := s.FindContainer(ref); ok {
			t.Errorf("FindContainer(%q) found something", ref)
		}
	}
	if on := s.TasksOn("GPU-a"); len(on) != 2 || on[0].ID != "1" || on[1].ID != "3" {
		t.Errorf("TasksOn = %v", on)
	}
	if _, ok := s.FindGPU("GPU-a"); !ok {
		t.Error("FindGPU did not find GPU-a")
	}
	if _, ok := s.FindGPU("GPU-z"); ok {
		t.Error("FindGPU found GPU-z")
	}
}

// A container may be called like the id of another, or like the beginning of one.
func TestNameThatLooksLikeAnID(t *testing.T) {
	id := strings.Repeat("ab", 32)
	twin := id[:20] + strings.Repeat("c", 44)
	other := strings.Repeat("d", 64)
	for _, tt := range []struct {
		name string // of the other container, which comes first
		ref  string
		want string // "": none
	}{
		{id, id, id},
		{id, other, other},
		{id[:12], id, id},
		{id[:12], id[:12], other}, // a name goes before a prefix
		{"aaa", id[:21], id},
		{"aaa", id[:12], ""}, // two ids begin so
		{"aaa", twin[:21], twin},
	} {
		s := task.Snapshot{Containers: []task.Container{{ID: other, Name: tt.name}, {ID: twin, Name: "twin"}, {ID: id, Name: "web"}}}
		if c, ok := s.FindContainer(tt.ref); c.ID != tt.want || ok != (tt.want != "") {
			t.Errorf("FindContainer(%q) beside one called %q = %q, %v; want %q", tt.ref, tt.name, c.ID, ok, tt.want)
		}
	}
}
