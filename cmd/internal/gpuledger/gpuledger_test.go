package gpuledger_test

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/laxity/laxity/actuator/enforce/memory"
	"github.com/laxity/laxity/cmd/internal/gpuledger"
	"github.com/laxity/laxity/exporter/device"
)

type fake struct {
	reading device.Reading
	err     error
}

func (f fake) Read(context.Context) (device.Reading, error) { return f.reading, f.err }
func (fake) Close() error                                   { return nil }

func TestOf(t *testing.T) {
	broken := errors.New("broken")
	gpus := []device.GPU{
		{UUID: "GPU-1", MemoryUsed: 40, Processes: []device.Process{{PID: 7, MemoryUsed: 10}, {PID: 8, MemoryUsed: 20}}},
		{UUID: "GPU-2"},
	}
	held, err := gpuledger.Of(fake{reading: device.Reading{GPUs: gpus}})(t.Context())
	want := map[string]memory.Usage{"GPU-1": {Used: 40, Processes: map[int]uint64{7: 10, 8: 20}}, "GPU-2": {Processes: map[int]uint64{}}}
	if err != nil || !reflect.DeepEqual(held, want) {
		t.Errorf("%v, %v", held, err)
	}
	if _, err := gpuledger.Of(fake{err: broken})(t.Context()); !errors.Is(err, broken) {
		t.Error(err)
	}
	gpus[1].ProcessesErr = broken
	if _, err := gpuledger.Of(fake{reading: device.Reading{GPUs: gpus}})(t.Context()); !errors.Is(err, broken) {
		t.Error("a GPU whose processes cannot be read:", err)
	}
}
