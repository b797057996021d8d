package detect_test

import (
	"errors"
	"testing"

	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/sensor/detect"
	"github.com/laxity/laxity/exporter/task"
)

func TestAll(t *testing.T) {
	for _, f := range detect.All("") {
		t.Logf("%s (%s): %v", f.Source, f.Sees, f.Err)
		if f.Err != nil && !errors.Is(f.Err, sensor.ErrUnsupported) {
			t.Errorf("%s: %v is no reason", f.Source, f.Err)
		}
	}
}

func TestOpenAutoIsTheBestThatWorks(t *testing.T) {
	starts, source, skipped, err := detect.Open(detect.Options{Name: "auto"})
	if err != nil {
		t.Fatal(err)
	}
	if starts != nil {
		defer starts.Close()
	}
	want := task.SourceDevice
	for _, f := range detect.All("") {
		if f.Err == nil && f.Source != task.SourcePidfd {
			want = f.Source
			break
		}
	}
	if source != want || (starts == nil) != (want == task.SourceDevice) {
		t.Errorf("got %s, want %s; skipped %v", source, want, skipped)
	}
}

func TestOpenByName(t *testing.T) {
	if starts, source, _, err := detect.Open(detect.Options{Name: "device"}); starts != nil || source != task.SourceDevice || err != nil {
		t.Errorf("device: %v, %s, %v", starts, source, err)
	}
	if _, _, _, err := detect.Open(detect.Options{Name: "radar"}); !errors.Is(err, detect.ErrUnknown) {
		t.Errorf("radar: %v", err)
	}
	for _, name := range []string{"uprobe", "fanotify"} {
		starts, source, _, err := detect.Open(detect.Options{Name: name})
		switch {
		case errors.Is(err, sensor.ErrUnsupported):
			t.Logf("%s: %v", name, err)
		case err != nil || string(source) != name:
			t.Errorf("%s: %s, %v", name, source, err)
		default:
			_ = starts.Close()
		}
	}
}
