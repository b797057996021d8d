//go:build linux && cgo

package nvml

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/internal/needtest"
)

// BenchmarkQueries is what each query costs on a real card: the time, and the processor time in it. A
// query that samples for 20 ms may sleep or spin.
func BenchmarkQueries(b *testing.B) {
	lib := nvml.New()
	if ret := lib.Init(); ret != nvml.SUCCESS {
		needtest.GPU.Skipf(b, "needs a GPU of NVIDIA: %v", nvml.ErrorString(ret))
	}
	defer func() { _ = lib.Shutdown() }()
	handle, ret := lib.DeviceGetHandleByIndex(0)
	if ret != nvml.SUCCESS {
		needtest.GPU.Skipf(b, "needs a GPU of NVIDIA: %v", nvml.ErrorString(ret))
	}
	run := func(name string, ask func()) {
		b.Run(name, func(b *testing.B) {
			before := processorTime(b)
			for range b.N {
				ask()
			}
			b.ReportMetric(float64((processorTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
		})
	}
	for i, q := range queries {
		run(fmt.Sprintf("%d-%s", i, q.symbol), func() { q.read(handle, &device.Card{}) })
	}
	run(processSamples, func() { _, _ = handle.GetProcessUtilization(uint64(time.Now().Add(-time.Second).UnixMicro())) })
	// Counters that would need no sampling, if the card has them.
	for what, id := range map[string]uint32{"transmitted": nvml.FI_DEV_PCIE_COUNT_TX_BYTES, "received": nvml.FI_DEV_PCIE_COUNT_RX_BYTES} {
		v, ret := field(handle, id, 0)
		b.Logf("bytes %s over PCIe: %d, %v", what, v, ret)
		run("field-pcie-bytes-"+what, func() { _, _ = field(handle, id, 0) })
	}
	run("nvmlDeviceGetComputeRunningProcesses", func() { _, _ = handle.GetComputeRunningProcesses() })
	run("nvmlDeviceGetMemoryInfo", func() { _, _ = handle.GetMemoryInfo() })
}

// processorTime is what this process has used.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
