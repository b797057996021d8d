package detect_test

import (
	"errors"
	"testing"

	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/sensor/detect"
)

func TestAll(t *testing.T) {
	for _, f := range detect.All("") {
		t.Logf("%s (%s): %v", f.Source, f.Sees, f.Err)
		if f.Err != nil && !errors.Is(f.Err, sensor.ErrUnsupported) {
			t.Errorf("%s: %v is no reason", f.Source, f.Err)
		}
	}
}

// What is found to work can be opened, and what is found not to work says the same.
func TestSensorsAreAsFound(t *testing.T) {
	sensors := detect.Sensors(detect.Options{})
	for i, f := range detect.All("")[:len(sensors)] { // ends come last
		starts, err := sensors[i].Open()
		if err == nil {
			err = starts.Close()
		}
		if sensors[i].Source != f.Source || (err == nil) != (f.Err == nil) || (err != nil && !errors.Is(err, sensor.ErrUnsupported)) {
			t.Errorf("%s: %v; found %s: %v", sensors[i].Source, err, f.Source, f.Err)
		}
	}
}
