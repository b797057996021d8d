package exporter_test

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/laxity/laxity/exporter"
	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/exporter/task"
)

type fakeReading struct {
	reading device.Reading
	err     error
}

func (f fakeReading) Read(context.Context) (device.Reading, error) { return f.reading, f.err }
func (fakeReading) Close() error                                   { return nil }

func TestLedger(t *testing.T) {
	broken := errors.New("broken")
	gpus := []device.GPU{
		{UUID: "GPU-1", MemoryUsed: 40, Processes: []device.Process{{PID: 7, MemoryUsed: 10}, {PID: 8, MemoryUsed: 20}}},
		{UUID: "GPU-2"},
	}
	held, err := exporter.UsageOf(fakeReading{reading: device.Reading{GPUs: gpus}})(t.Context())
	want := map[string]task.Usage{"GPU-1": {Used: 40, Processes: map[int]uint64{7: 10, 8: 20}}, "GPU-2": {Processes: map[int]uint64{}}}
	if err != nil || !reflect.DeepEqual(held, want) {
		t.Errorf("%v, %v", held, err)
	}
	if _, err := exporter.UsageOf(fakeReading{err: broken})(t.Context()); !errors.Is(err, broken) {
		t.Error(err)
	}
	gpus[1].ProcessesErr = broken
	if _, err := exporter.UsageOf(fakeReading{reading: device.Reading{GPUs: gpus}})(t.Context()); !errors.Is(err, broken) {
		t.Error("a GPU whose processes cannot be read:", err)
	}
}
