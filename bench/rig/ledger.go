package rig

import (
	"context"
	"errors"

	"github.com/laxity/laxity/actuator/enforce/memory"
	"github.com/laxity/laxity/exporter/device"
)

// Ledger reads a device for a memory guard, as the programs do (cmd/internal/gpuledger,
// which only they may import).
func Ledger(d device.Device) memory.Ledger {
	return func(ctx context.Context) (map[string]memory.Usage, error) {
		reading, err := d.Read(ctx)
		held := map[string]memory.Usage{}
		for _, g := range reading.GPUs {
			err = errors.Join(err, g.ProcessesErr)
			u := memory.Usage{Used: g.MemoryUsed, Processes: map[int]uint64{}}
			for _, p := range g.Processes {
				u.Processes[p.PID] += p.MemoryUsed
			}
			held[g.UUID] = u
		}
		return held, err
	}
}
