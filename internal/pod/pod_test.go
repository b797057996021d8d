package pod_test

import (
	"maps"
	"testing"

	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/pod"
)

func TestLabels(t *testing.T) {
	container := map[string]string{"laxity.deadline": "1s", "laxity.share": "10%", "app": "c", "own": "1"}
	got := pod.Labels(container,
		map[string]string{"laxity.deadline": "2s", "laxity.class": "batch", "app": "p"},
		map[string]string{"laxity.dev/deadline": "3s", "other.dev/deadline": "4s", "xlaxity.dev/class": "none"})
	want := map[string]string{"laxity.deadline": "3s", "laxity.share": "10%", "laxity.class": "batch", "app": "p", "own": "1"}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if container["app"] != "c" {
		t.Error("the container's own map was changed")
	}
	if got := pod.Labels(nil, nil, nil); got == nil || len(got) > 0 {
		t.Errorf("of nothing: %v", got)
	}
}

// An annotation that Laxity does not know must not make a pod one that is acted on.
func TestUnknownAnnotationManagesNobody(t *testing.T) {
	for _, annotations := range []map[string]string{{"laxity.dev/puase": "never"}, {"laxity.dev/": "never"}, {"laxity.dev/deadline.": "9s"}} {
		if s, invalid := task.ParseLabels(pod.Labels(nil, nil, annotations)); s.Managed || len(invalid) != 1 {
			t.Errorf("%v: managed %v, invalid %v", annotations, s.Managed, invalid)
		}
	}
	if s, _ := task.ParseLabels(pod.Labels(nil, nil, map[string]string{"laxity.dev/pause": "never"})); !s.Managed || !s.NeverPause {
		t.Errorf("a known one: %+v", s)
	}
}
