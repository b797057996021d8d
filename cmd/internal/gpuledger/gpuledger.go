// Package gpuledger tells the actuator's memory guard what the exporter's devices
// know: how much memory is in use on each GPU, and by which process.
package gpuledger

import (
	"context"
	"errors"

	"github.com/laxity/laxity/actuator/enforce/memory"
	"github.com/laxity/laxity/exporter"
	"github.com/laxity/laxity/exporter/device"
)

// Opener returns what opens the ledger of a device, named as in exporter.OpenDevice.
// It is opened apart from the exporter's: it must tell of this very moment.
func Opener(spec string) func() (memory.Ledger, error) {
	return func() (memory.Ledger, error) {
		d, err := exporter.OpenDevice(spec)
		if err != nil {
			return nil, err
		}
		return Of(d), nil
	}
}

// Of reads a device. The error is that of a GPU whose processes cannot be read:
// what is held on it must not be taken for nothing.
func Of(d device.Device) memory.Ledger {
	return func(ctx context.Context) (map[string]memory.Usage, error) {
		reading, err := d.Read(ctx)
		if err != nil {
			return nil, err
		}
		var errs []error
		held := make(map[string]memory.Usage, len(reading.GPUs))
		for _, g := range reading.GPUs {
			errs = append(errs, g.ProcessesErr)
			u := memory.Usage{Used: g.MemoryUsed, Processes: make(map[int]uint64, len(g.Processes))}
			for _, p := range g.Processes {
				u.Processes[p.PID] += p.MemoryUsed
			}
			held[g.UUID] = u
		}
		return held, errors.Join(errs...)
	}
}
