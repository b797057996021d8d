//go:build linux && cgo

package nvml

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/exporter/device/sim"
)

// fakeLibrary is NVML on simulated GPUs. Functions that it has not, and any call
// while it is not initialised, panic, as the real library ends the process.
type fakeLibrary struct {
	nvml.Interface
	nvml.ExtendedInterface
	device   device.Device
	users    int // NVML counts them
	ready    bool
	inits    int
	missing  string // a function that this driver lacks
	reading  device.Reading
	mpsTwice bool // it lists the clients of MPS among all processes, too
	samples  func(lastSeen uint64) ([]nvml.ProcessUtilizationSample, nvml.Return)

	conditions device.Cards
	events     *fakeEvents
	fail       map[string]nvml.Return // what some queries answer
	pcie       int                    // how often PCIe was sampled
}

func newFake(gpu *sim.GPU) *fakeLibrary {
	d := gpu.Device()
	conditions, _ := d.(device.WithCards).Cards() // cannot fail
	return &fakeLibrary{device: d, conditions: conditions}
}

func (f *fakeLibrary) Init() nvml.Return {
	f.inits++
	if _, err := f.device.Read(context.Background()); err != nil {
		if _, err := f.device.Read(context.Background()); err != nil {
			return nvml.ERROR_DRIVER_NOT_LOADED
		}
	}
	f.users++
	f.ready = true
	return nvml.SUCCESS
}

func (f *fakeLibrary) Shutdown() nvml.Return {
	f.gate()
	f.users--
	f.ready = f.users > 0
	return nvml.SUCCESS
}

func (f *fakeLibrary) gate() {
	if !f.ready {
		panic("NVML called while not initialised")
	}
}

// refresh reads the simulated GPUs; the driver is gone when that fails.
func (f *fakeLibrary) refresh() nvml.Return {
	f.gate()
	r, err := f.device.Read(context.Background())
	if err != nil {
		return nvml.ERROR_UNINITIALIZED
	}
	f.reading = r
	return nvml.SUCCESS
}

func (f *fakeLibrary) Extensions() nvml.ExtendedInterface { return f }

func (f *fakeLibrary) LookupSymbol(name string) error {
	f.gate()
	if name == f.missing || slices.Contains(mpsClients, f.missing) && slices.Contains(mpsClients, name) {
		return fmt.Errorf("no %s", name)
	}
	return nil
}

func (f *fakeLibrary) SystemGetDriverVersion() (string, nvml.Return) {
	return "580.0", f.refresh()
}

// cards are the indices in use, and the UUID of each card.
func (f *fakeLibrary) cards() (uuids []string) {
	for _, g := range f.reading.GPUs {
		if g.Index == len(uuids) {
			uuids = append(uuids, g.UUID)
			if g.Parent != "" {
				uuids[g.Index] = g.Parent
			}
		}
	}
	return uuids
}

func (f *fakeLibrary) DeviceGetCount() (int, nvml.Return) {
	ret := f.refresh()
	return len(f.cards()), ret
}

func (f *fakeLibrary) DeviceGetHandleByIndex(i int) (nvml.Device, nvml.Return) {
	if ret := f.refresh(); ret != nvml.SUCCESS {
		return nil, ret
	}
	h := &fakeDevice{lib: f, uuid: f.cards()[i], index: i}
	if _, ret := h.state(); ret == nvml.ERROR_GPU_IS_LOST {
		return nil, nvml.ERROR_GPU_IS_LOST
	}
	return h, nvml.SUCCESS
}

// fakeDevice is a card, in MIG mode or not, or a MIG instance.
type fakeDevice struct {
	nvml.Device
	lib   *fakeLibrary
	uuid  string
	index int
}

func (d *fakeDevice) state() (device.GPU, nvml.Return) {
	if ret := d.lib.refresh(); ret != nvml.SUCCESS {
		return device.GPU{}, ret
	}
	for _, g := range d.lib.reading.GPUs {
		if g.UUID == d.uuid {
			if g.MemoryTotal == 0 {
				return g, nvml.ERROR_GPU_IS_LOST
			}
			return g, nvml.SUCCESS
		}
	}
	if instances := d.instances(); len(instances) > 0 {
		return instances[0], nvml.SUCCESS
	}
	return device.GPU{}, nvml.ERROR_NOT_FOUND
}

func (d *fakeDevice) instances() (list []device.GPU) {
	for _, g := range d.lib.reading.GPUs {
		if g.Parent == d.uuid {
			list = append(list, g)
		}
	}
	return list
}

func (d *fakeDevice) GetUUID() (string, nvml.Return) {
	_, ret := d.state()
	return d.uuid, ret
}

func (d *fakeDevice) GetName() (string, nvml.Return) {
	g, ret := d.state()
	return g.Name, ret
}

func (d *fakeDevice) GetComputeMode() (nvml.ComputeMode, nvml.Return) {
	_, ret := d.state()
	return nvml.COMPUTEMODE_DEFAULT, ret
}

func (d *fakeDevice) GetMigMode() (int, int, nvml.Return) {
	_, ret := d.state()
	if len(d.instances()) > 0 {
		return nvml.DEVICE_MIG_ENABLE, nvml.DEVICE_MIG_ENABLE, ret
	}
	return nvml.DEVICE_MIG_DISABLE, nvml.DEVICE_MIG_DISABLE, ret
}

func (d *fakeDevice) GetMaxMigDeviceCount() (int, nvml.Return) {
	_, ret := d.state()
	return 7, ret
}

func (d *fakeDevice) GetMigDeviceHandleByIndex(i int) (nvml.Device, nvml.Return) {
	if _, ret := d.state(); ret != nvml.SUCCESS {
		return nil, ret
	}
	if list := d.instances(); i < len(list) {
		return &fakeDevice{lib: d.lib, uuid: list[i].UUID, index: d.index}, nvml.SUCCESS
	}
	return nil, nvml.ERROR_NOT_FOUND
}

func (d *fakeDevice) GetMemoryInfo_v2() (nvml.Memory_v2, nvml.Return) {
	g, ret := d.state()
	const reserved = 600 << 20
	return nvml.Memory_v2{Total: g.MemoryTotal + reserved, Reserved: reserved, Used: g.MemoryUsed}, ret
}

func (d *fakeDevice) GetUtilizationRates() (nvml.Utilization, nvml.Return) {
	g, ret := d.state()
	if math.IsNaN(g.Utilization) {
		return nvml.Utilization{}, nvml.ERROR_NOT_SUPPORTED
	}
	return nvml.Utilization{Gpu: uint32(math.Round(g.Utilization * 100))}, ret
}

func (d *fakeDevice) GetComputeRunningProcesses() ([]nvml.ProcessInfo, nvml.Return) {
	g, ret := d.state()
	if len(d.instances()) > 0 {
		panic("processes of a card in MIG mode asked for without its instances")
	}
	if ret == nvml.SUCCESS && g.ProcessesErr != nil {
		ret = nvml.ERROR_UNKNOWN
	}
	var list []nvml.ProcessInfo
	for _, p := range g.Processes {
		if !p.MPS || d.lib.mpsTwice {
			list = append(list, nvml.ProcessInfo{Pid: uint32(p.PID), UsedGpuMemory: p.MemoryUsed})
		}
	}
	return list, ret
}

func (d *fakeDevice) GetMPSComputeRunningProcesses() ([]nvml.ProcessInfo, nvml.Return) {
	if slices.Contains(mpsClients, d.lib.missing) {
		panic("a function that this NVML lacks")
	}
	g, ret := d.state()
	if code, fails := d.lib.fail["mps"]; fails && ret == nvml.SUCCESS {
		return nil, code
	}
	var list []nvml.ProcessInfo
	for _, p := range g.Processes {
		if p.MPS {
			list = append(list, nvml.ProcessInfo{Pid: uint32(p.PID), UsedGpuMemory: p.MemoryUsed})
		}
	}
	return list, ret
}

func (d *fakeDevice) GetProcessUtilization(lastSeen uint64) ([]nvml.ProcessUtilizationSample, nvml.Return) {
	if _, ret := d.state(); ret != nvml.SUCCESS {
		return nil, ret
	}
	if d.lib.samples == nil {
		return nil, nvml.ERROR_NOT_FOUND
	}
	return d.lib.samples(lastSeen)
}

// newSim returns GPUs with a process on the first.
func newSim(t *testing.T) (*sim.GPU, int) {
	t.Helper()
	gpu, err := sim.New(sim.Options{Cards: make([]sim.Card, 2), ContextTime: -1, ListDelay: -1})
	if err != nil {
		t.Fatal(err)
	}
	const pid = 4711
	if err := gpu.Attach(pid).Open(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	return gpu, pid
}

func sample(pid int, at time.Time, percent uint32) nvml.ProcessUtilizationSample {
	return nvml.ProcessUtilizationSample{Pid: uint32(pid), TimeStamp: uint64(at.UnixMicro()), SmUtil: percent}
}

func newer(list []nvml.ProcessUtilizationSample, than uint64) []nvml.ProcessUtilizationSample {
	return slices.DeleteFunc(slices.Clone(list), func(s nvml.ProcessUtilizationSample) bool { return s.TimeStamp <= than })
}
