package exporter

import (
	"context"

	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/exporter/task"
)

// OpenUsage returns a function that opens the reader of a device's memory, named as in OpenDevice.
// The reader opens its own device, not the exporter's: it must read the memory at this very
// moment.
func OpenUsage(spec string) func() (task.UsageReader, error) {
	return func() (task.UsageReader, error) {
		d, err := OpenDevice(spec)
		if err != nil {
			return nil, err
		}
		return UsageOf(d), nil
	}
}

// UsageOf returns the reader of a device's memory.
func UsageOf(d device.Device) task.UsageReader {
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
