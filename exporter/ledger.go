package exporter

import (
	"context"
	"errors"

	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/exporter/task"
)

// OpenLedger returns a function that opens the ledger of a device, named as in OpenDevice.
// The ledger opens its own device, not the exporter's: it must read the memory at this very
// moment.
func OpenLedger(spec string) func() (task.Ledger, error) {
	return func() (task.Ledger, error) {
		d, err := OpenDevice(spec)
		if err != nil {
			return nil, err
		}
		return Ledger(d), nil
	}
}

// Ledger returns the ledger of a device.
func Ledger(d device.Device) task.Ledger {
	return func(ctx context.Context) (map[string]task.Usage, error) {
		reading, err := d.Read(ctx)
		if err != nil {
			return nil, err
		}
		var errs []error
		held := make(map[string]task.Usage, len(reading.GPUs))
		for _, g := range reading.GPUs {
			errs = append(errs, g.ProcessesErr)
			u := task.Usage{Used: g.MemoryUsed, Processes: make(map[int]uint64, len(g.Processes))}
			for _, p := range g.Processes {
				u.Processes[p.PID] += p.MemoryUsed
			}
			held[g.UUID] = u
		}
		return held, errors.Join(errs...)
	}
}
