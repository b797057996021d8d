package rig

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"time"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/tenant"
	"github.com/laxity/laxity/exporter"
	"github.com/laxity/laxity/exporter/device"
)

// ContextMost bounds what a context takes, bytes.
const ContextMost = 640 << 20

// ballastLimit is how long the ballast may take to hold its memory.
const ballastLimit = time.Minute

// Read reads the GPUs once.
func (r *Rig) Read(ctx context.Context) (device.Reading, error) {
	d, err := exporter.OpenDevice(r.GPU.Device)
	if err != nil {
		return device.Reading{}, err
	}
	defer d.Close()
	reading, err := d.Read(ctx)
	if err == nil && len(reading.GPUs) == 0 {
		err = errors.New("this machine has no GPU")
	}
	return reading, err
}

// Ballast starts a container without a label that leaves so many bytes of the first GPU to others, or
// up to ContextMost more, and returns once it holds the rest. A GPU with little more than that gets none.
// It goes with the rig; there is one.
func (r *Rig) Ballast(ctx context.Context, leave uint64) error {
	reading, err := r.Read(ctx)
	if err != nil {
		return err
	}
	g := reading.GPUs[0]
	if g.MemoryTotal < g.MemoryUsed+leave+ContextMost+1<<30 {
		return nil
	}
	holds := g.MemoryTotal - g.MemoryUsed - leave - ContextMost
	_, err = r.Tenants.Start(ctx, tenant.Spec{
		Name: fmt.Sprintf("laxity-bench-ballast-%d", os.Getpid()),
		Args: []string{"--context-only", "--alloc-extra", strconv.FormatUint(holds>>20, 10), "--hold", "100000"},
	})
	if err != nil {
		return err
	}
	err = bench.Until(ctx, ballastLimit, func() (bool, error) {
		now, err := r.Read(ctx)
		return err == nil && now.GPUs[0].MemoryUsed >= g.MemoryUsed+holds, err
	})
	if err != nil {
		return fmt.Errorf("the ballast does not hold its memory: %w", err)
	}
	return nil
}

// Watched is what was in use of the first GPU while it was watched, beyond what was when that began; bytes.
// NaN: it could not be read.
type Watched struct{ Mean, Most float64 }

// watchEvery is how often the memory is read.
const watchEvery = 50 * time.Millisecond

// WatchMemory watches the first GPU until stop, which may be called once.
func (r *Rig) WatchMemory(ctx context.Context) (stop func() Watched, err error) {
	d, err := exporter.OpenDevice(r.GPU.Device)
	if err != nil {
		return nil, err
	}
	first, err := d.Read(ctx)
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	found := make(chan Watched, 1)
	go func() {
		defer d.Close()
		found <- watch(ctx, d, first.GPUs[0].MemoryUsed)
	}()
	return func() Watched {
		cancel()
		return <-found
	}, nil
}

func watch(ctx context.Context, d device.Device, base uint64) Watched {
	sum, most, n := 0.0, 0.0, 0
	for bench.Pass(ctx, watchEvery) == nil {
		reading, err := d.Read(ctx)
		if err != nil {
			continue
		}
		more := float64(max(reading.GPUs[0].MemoryUsed, base) - base)
		sum, most, n = sum+more, max(most, more), n+1
	}
	if n == 0 {
		return Watched{math.NaN(), math.NaN()}
	}
	return Watched{sum / float64(n), most}
}
