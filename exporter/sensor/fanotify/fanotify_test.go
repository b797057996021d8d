package fanotify_test

import (
	"errors"
	"testing"

	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/sensor/fanotify"
	"github.com/laxity/laxity/exporter/sensor/sensortest"
	"github.com/laxity/laxity/internal/cudaprobe/cudatest"
	"github.com/laxity/laxity/internal/needtest"
)

func TestConformance(t *testing.T) {
	sensortest.Case{
		Open: func(t testing.TB) sensortest.Starts {
			s, err := fanotify.New(fanotify.Options{})
			if errors.Is(err, sensor.ErrUnsupported) {
				needtest.Fanotify.Skip(t, err)
			}
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		Kind:  sensor.LibraryOpened,
		Begin: (*cudatest.Program).Open,
	}.Conformance(t)
}

func TestSupported(t *testing.T) {
	if err := fanotify.Supported(); err != nil && !errors.Is(err, sensor.ErrUnsupported) {
		t.Error(err)
	}
}
