package exporter_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

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

// An error of one GPU is told of that GPU alone: the others are read.
func TestUsageOf(t *testing.T) {
	broken := errors.New("broken")
	first := device.GPU{UUID: "GPU-1", MemoryUsed: 40, Processes: []device.Process{{PID: 7, MemoryUsed: 10}, {PID: 8, MemoryUsed: 20}, {PID: 7, MemoryUsed: 1}}}
	used := task.Usage{Used: 40, Processes: map[int]uint64{7: 11, 8: 20}}
	for name, test := range map[string]struct {
		device fakeReading
		want   map[string]task.Usage
		err    error
	}{
		"the device cannot be read": {device: fakeReading{err: broken}, err: broken},
		"no GPU":                    {want: map[string]task.Usage{}},
		"one is not used": {
			device: fakeReading{reading: device.Reading{GPUs: []device.GPU{first, {UUID: "GPU-2"}}}},
			want:   map[string]task.Usage{"GPU-1": used, "GPU-2": {Processes: map[int]uint64{}}},
		},
		"one fell off the bus": {
			device: fakeReading{reading: device.Reading{GPUs: []device.GPU{{UUID: "GPU-2", ProcessesErr: broken}, first}}},
			want:   map[string]task.Usage{"GPU-1": used, "GPU-2": {Err: broken}},
		},
		"the processes of one cannot be listed": {
			device: fakeReading{reading: device.Reading{GPUs: []device.GPU{first, {UUID: "GPU-2", MemoryTotal: 80, MemoryUsed: 50, ProcessesErr: broken}}}},
			want:   map[string]task.Usage{"GPU-1": used, "GPU-2": {Err: broken}},
		},
	} {
		if held, err := exporter.UsageOf(test.device)(t.Context()); !errors.Is(err, test.err) || !reflect.DeepEqual(held, test.want) {
			t.Errorf("%s: %v, %v", name, held, err)
		}
	}
}

// A driver that hangs while it is opened keeps nobody who wants to read its memory, and is read as soon
// as it answers. One that is not there is an error.
func TestOpenUsage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers, missing := make(chan struct{}), errors.New("no driver")
		hangs := func() (device.Source[device.Reading], error) {
			<-answers
			return fakeReading{}, nil
		}
		read, err := exporter.OpenUsageWith(hangs, time.Second)()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := read(t.Context()); !errors.Is(err, device.ErrNotAnswering) {
			t.Errorf("read while it hangs: %v", err)
		}
		close(answers)
		synctest.Wait()
		if held, err := read(t.Context()); held == nil || err != nil {
			t.Errorf("read afterwards: %v, %v", held, err)
		}
		none := func() (device.Source[device.Reading], error) { return nil, missing }
		if _, err := exporter.OpenUsageWith(none, time.Second)(); !errors.Is(err, missing) {
			t.Errorf("open where there is none: %v", err)
		}
	})
}
