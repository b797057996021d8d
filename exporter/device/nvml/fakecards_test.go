//go:build linux && cgo

package nvml

import (
	"context"
	"encoding/binary"
	"math"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/laxity/laxity/exporter/device"
)

// condition is the simulated card behind a handle.
func (d *fakeDevice) condition() (device.Card, nvml.Return) {
	d.lib.gate()
	r, err := d.lib.conditions.Read(context.Background())
	if err != nil { // once after the driver was loaded
		r, err = d.lib.conditions.Read(context.Background())
	}
	if err != nil {
		return device.Card{}, nvml.ERROR_GPU_IS_LOST
	}
	for _, c := range r.Cards {
		if c.UUID == d.uuid {
			return c, nvml.SUCCESS
		}
	}
	return device.Card{}, nvml.ERROR_GPU_IS_LOST
}

// fails reports what the test lets a function answer.
func (d *fakeDevice) fails(name string) nvml.Return { return d.lib.fail[name] }

func (d *fakeDevice) milli(name string, of func(device.Card) *float64) (float64, nvml.Return) {
	if ret := d.fails(name); ret != nvml.SUCCESS {
		return 0, ret
	}
	c, ret := d.condition()
	if ret != nvml.SUCCESS {
		return 0, ret
	}
	return *of(c) * 1e3, nvml.SUCCESS
}

func (d *fakeDevice) GetPowerUsage() (uint32, nvml.Return) {
	v, ret := d.milli("power", func(c device.Card) *float64 { return c.Power })
	return uint32(math.Round(v)), ret
}

func (d *fakeDevice) GetEnforcedPowerLimit() (uint32, nvml.Return) {
	v, ret := d.milli("limit", func(c device.Card) *float64 { return c.PowerLimit })
	return uint32(math.Round(v)), ret
}

func (d *fakeDevice) GetTotalEnergyConsumption() (uint64, nvml.Return) {
	v, ret := d.milli("energy", func(c device.Card) *float64 { return c.Energy })
	return uint64(math.Round(v)), ret
}

func (d *fakeDevice) GetTemperature(nvml.TemperatureSensors) (uint32, nvml.Return) {
	c, ret := d.condition()
	return uint32(c.Temperature[device.GPUSensor]), ret
}

func (d *fakeDevice) GetClockInfo(clock nvml.ClockType) (uint32, nvml.Return) {
	c, ret := d.condition()
	name := map[nvml.ClockType]string{nvml.CLOCK_SM: device.SMClock, nvml.CLOCK_MEM: device.MemoryClock}[clock]
	return uint32(c.Clock[name] / 1e6), ret
}

func (d *fakeDevice) GetCurrentClocksThrottleReasons() (bits uint64, ret nvml.Return) {
	c, ret := d.condition()
	for name, bit := range map[string]uint64{"power_cap": 0x4, "hardware": 0x8, "sync_boost": 0x10, "thermal": 0x20,
		"hardware_thermal": 0x40, "hardware_power_brake": 0x80} { // as nvml.h has them
		if c.Throttled[name] {
			bits |= bit
		}
	}
	return bits | 0x1 | 0x2 | 0x100, ret // idle, set by somebody, display: no throttling
}

func (d *fakeDevice) GetTotalEccErrors(kind nvml.MemoryErrorType, counter nvml.EccCounterType) (uint64, nvml.Return) {
	if counter != nvml.AGGREGATE_ECC {
		panic("a counter that begins anew with the driver")
	}
	if ret := d.fails("ecc"); ret != nvml.SUCCESS {
		return 0, ret
	}
	c, ret := d.condition()
	if kind == nvml.MEMORY_ERROR_TYPE_CORRECTED {
		return c.ECC[device.Corrected], ret
	}
	return c.ECC[device.Uncorrected], ret
}

func (d *fakeDevice) GetPcieThroughput(counter nvml.PcieUtilCounter) (uint32, nvml.Return) {
	d.lib.pcie++
	_, ret := d.condition()
	return uint32(1000 * (1 + counter)), ret
}

func (d *fakeDevice) GetFieldValues(values []nvml.FieldValue) nvml.Return {
	c, ret := d.condition()
	for i := range values {
		v := &values[i]
		v.NvmlReturn = uint32(nvml.ERROR_NOT_SUPPORTED) // this card has no NVLink
		if v.FieldId == nvml.FI_DEV_MEMORY_TEMP {
			v.NvmlReturn, v.ValueType = uint32(nvml.SUCCESS), uint32(nvml.VALUE_TYPE_UNSIGNED_INT)
			binary.NativeEndian.PutUint32(v.Value[:], uint32(c.Temperature[device.MemorySensor]))
			binary.NativeEndian.PutUint32(v.Value[4:], 0xdeadbeef) // what a union has beside its value
		}
	}
	return ret
}

func (d *fakeDevice) RegisterEvents(kinds uint64, set nvml.EventSet) nvml.Return {
	if kinds != nvml.EventTypeXidCriticalError || set != d.lib.events {
		panic("registered with something else")
	}
	return d.fails("register")
}

// fakeEvents is an event set with a queue.
type fakeEvents struct {
	nvml.EventSet
	lib   *fakeLibrary
	queue []nvml.EventData
	freed bool
}

func (f *fakeLibrary) EventSetCreate() (nvml.EventSet, nvml.Return) {
	f.gate()
	f.events = &fakeEvents{lib: f}
	return f.events, nvml.SUCCESS
}

func (e *fakeEvents) Wait(ms uint32) (nvml.EventData, nvml.Return) {
	e.lib.gate()
	if ms != 0 {
		panic("a reading waits for events")
	}
	if len(e.queue) == 0 {
		return nvml.EventData{}, nvml.ERROR_TIMEOUT
	}
	first := e.queue[0]
	e.queue = e.queue[1:]
	return first, nvml.SUCCESS
}

func (e *fakeEvents) Free() nvml.Return {
	e.lib.gate()
	e.freed = true
	return nvml.SUCCESS
}
