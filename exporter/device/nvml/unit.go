//go:build linux && cgo

package nvml

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/laxity/laxity/exporter/device"
)

// smInterval is how often per-process utilisation is read: that call takes milliseconds, the
// others microseconds.
const smInterval = time.Second

// notAvailable is how NVML says that it does not know a process's memory.
const notAvailable = math.MaxUint64

// unit is a card or a MIG instance.
type unit struct {
	handle nvml.Device // nil when it does not answer
	lost   nvml.Return // why
	info   device.GPU  // identity only
	mps    bool        // this NVML lists the clients of MPS
	sm     samples
}

// read returns the unit's state. If the result is not SUCCESS the unit did not answer, and
// the state says so.
func (u *unit) read(now time.Time) (device.GPU, nvml.Return) {
	gpu := u.info
	gpu.Utilization = math.NaN()
	ret := u.lost
	if u.handle != nil {
		gpu.MemoryTotal, gpu.MemoryUsed, ret = memoryOf(u.handle)
	}
	if ret != nvml.SUCCESS {
		gpu.ProcessesErr = fmt.Errorf("NVML: GPU does not answer: %w", ret)
		return gpu, ret
	}
	if rates, ret := u.handle.GetUtilizationRates(); ret == nvml.SUCCESS {
		gpu.Utilization = float64(rates.Gpu) / 100
	}
	list, ret := u.handle.GetComputeRunningProcesses()
	if gone(ret) {
		return gpu, ret
	}
	if ret != nvml.SUCCESS {
		gpu.ProcessesErr = fmt.Errorf("NVML: list of processes: %w", ret)
		return gpu, nvml.SUCCESS
	}
	var clients []nvml.ProcessInfo
	if u.mps {
		clients, ret = u.handle.GetMPSComputeRunningProcesses()
		if gone(ret) {
			return gpu, ret
		}
		if ret != nvml.SUCCESS && ret != nvml.ERROR_NOT_SUPPORTED {
			gpu.ProcessesErr = fmt.Errorf("NVML: list of the clients of MPS: %w", ret)
			return gpu, nvml.SUCCESS
		}
		gpu.TellsMPS = ret == nvml.SUCCESS
	}
	if len(list)+len(clients) > 0 && gpu.Parent == "" {
		u.sm.refresh(u.handle, now)
	}
	gpu.Processes = u.processes(list, clients)
	return gpu, nvml.SUCCESS
}

// memoryOf leaves out the memory that the driver keeps for itself, where NVML reports it. No
// process can have that memory, so a card without it counts as full.
func memoryOf(handle nvml.Device) (total, used uint64, ret nvml.Return) {
	info, ret := handle.GetMemoryInfo_v2()
	if ret == nvml.SUCCESS {
		return info.Total - min(info.Total, info.Reserved), info.Used, nvml.SUCCESS
	}
	if gone(ret) || ret == nvml.ERROR_GPU_IS_LOST {
		return 0, 0, ret
	}
	old, ret := handle.GetMemoryInfo()
	if ret != nvml.SUCCESS {
		return 0, 0, ret
	}
	return old.Total, old.Used, ret
}

// processes returns one entry per PID. The driver may list several contexts of one process, and a
// client of MPS in both lists, with the same memory.
func (u *unit) processes(list, clients []nvml.ProcessInfo) []device.Process {
	out := u.onePerPID(list)
	for _, c := range u.onePerPID(clients) {
		c.MPS = true
		i := slices.IndexFunc(out, func(p device.Process) bool { return p.PID == c.PID })
		if i < 0 {
			out = append(out, c)
			continue
		}
		c.MemoryUsed = max(c.MemoryUsed, out[i].MemoryUsed)
		out[i] = c
	}
	return out
}

func (u *unit) onePerPID(list []nvml.ProcessInfo) []device.Process {
	var out []device.Process
	at := map[int]int{}
	for _, p := range list {
		pid, used := int(p.Pid), p.UsedGpuMemory
		if used == notAvailable {
			used = 0
		}
		if i, ok := at[pid]; ok {
			out[i].MemoryUsed += used
			continue
		}
		at[pid] = len(out)
		out = append(out, device.Process{PID: pid, MemoryUsed: used, SMUtilization: u.sm.of(p.Pid)})
	}
	return out
}

// samples is the per-process utilisation of one card. Each card has its own last time stamp:
// a common one would drop samples.
type samples struct {
	asked time.Time
	last  uint64             // time stamp of the newest sample seen, µs
	share map[uint32]float64 // by PID; nil when not known
}

func (s *samples) of(pid uint32) float64 {
	if s.share == nil {
		return math.NaN()
	}
	return s.share[pid] // no sample: it did not run
}

// all returns the share of each process; nil when not known.
func (s *samples) all() map[int]float64 {
	if s.share == nil {
		return nil
	}
	out := make(map[int]float64, len(s.share))
	for pid, share := range s.share {
		out[int(pid)] = share
	}
	return out
}

func (s *samples) refresh(handle nvml.Device, now time.Time) {
	if passed := now.Sub(s.asked); passed >= 0 && passed < smInterval {
		return
	}
	s.asked = now
	s.take(handle, now)
}

// take reads the samples that are newer than the last one seen.
func (s *samples) take(handle nvml.Device, now time.Time) {
	// The first time the driver would return all samples that it still has, of processes long gone. And
	// where the clock was set back, samples are older than the last one for as long as it was: nobody
	// would seem to compute.
	ahead := uint64(now.Add(smInterval).UnixMicro())
	if s.last == 0 || s.last > ahead {
		s.last = uint64(now.Add(-smInterval).UnixMicro())
	}
	list, ret := handle.GetProcessUtilization(s.last)
	if ret != nvml.SUCCESS && ret != nvml.ERROR_NOT_FOUND { // not found: nothing ran
		s.share = nil
		return
	}
	if ret != nvml.SUCCESS {
		list = nil
	}
	s.add(list, ahead)
}

// add averages the samples that are newer than the last one seen, but for those of a time that is ahead.
func (s *samples) add(list []nvml.ProcessUtilizationSample, ahead uint64) {
	sum, count := map[uint32]float64{}, map[uint32]float64{}
	newest := s.last
	for _, p := range list {
		if p.TimeStamp <= s.last || p.TimeStamp > ahead || p.SmUtil > 100 {
			continue
		}
		newest = max(newest, p.TimeStamp)
		sum[p.Pid] += float64(p.SmUtil) / 100
		count[p.Pid]++
	}
	for pid := range sum {
		sum[pid] /= count[pid]
	}
	s.share, s.last = sum, newest
}
