package exporter

import (
	"context"
	"errors"
	"time"

	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/exporter/task"
)

// OpenUsage returns a function that opens the reader of a device's memory, named as in OpenDevice.
// The reader opens its own device, not the exporter's: it must read the memory at this very
// moment. Where the driver hangs at the opening, the reader's errors wrap device.ErrNotAnswering until
// it answers.
func OpenUsage(spec string) func() (task.UsageReader, error) {
	return openUsage(func() (device.Source[device.Reading], error) { return OpenDevice(spec) }, 0)
}

func openUsage(open func() (device.Source[device.Reading], error), limit time.Duration) func() (task.UsageReader, error) {
	return func() (task.UsageReader, error) {
		d := device.Opening(open, limit)
		if err := d.Open(); err != nil && !errors.Is(err, device.ErrNotAnswering) {
			return nil, err
		}
		return UsageOf(d), nil
	}
}

// UsageOf returns the reader of a device's memory.
func UsageOf(d device.Source[device.Reading]) task.UsageReader {
	return func(ctx context.Context) (map[string]task.Usage, error) {
		reading, err := d.Read(ctx)
		if err != nil {
			return nil, err
		}
		held := make(map[string]task.Usage, len(reading.GPUs))
		for _, g := range reading.GPUs {
			if g.ProcessesErr != nil {
				held[g.UUID] = task.Usage{Err: g.ProcessesErr}
				continue
			}
			u := task.Usage{Used: g.MemoryUsed, Processes: make(map[int]uint64, len(g.Processes))}
			for _, p := range g.Processes {
				u.Processes[p.PID] += p.MemoryUsed
			}
			held[g.UUID] = u
		}
		return held, nil
	}
}
