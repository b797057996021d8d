//go:build linux && cgo

package nvml

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/laxity/laxity/exporter/device"
)

// slowEvery is how often the slow queries are made: the driver samples PCIe for 20 ms in each
// direction, and the others change slowly.
const slowEvery = 5 * time.Second

// processSamples is the function that reports who used the multiprocessors: 1.8 ms.
const processSamples = "nvmlDeviceGetProcessUtilization"

// query asks a card one thing. What the card does not answer stays absent in the device.Card.
type query struct {
	symbol string // the function of NVML; a call of one that the library lacks would end the process
	slow   bool   // made each slowEvery, not at each reading
	read   func(nvml.Device, *device.Card) nvml.Return
}

var queries = []query{
	{"nvmlDeviceGetPowerUsage", false, func(h nvml.Device, c *device.Card) nvml.Return {
		v, ret := h.GetPowerUsage()
		return number(&c.Power, float64(v)/1e3, ret)
	}},
	{"nvmlDeviceGetTotalEnergyConsumption", false, func(h nvml.Device, c *device.Card) nvml.Return {
		v, ret := h.GetTotalEnergyConsumption()
		return number(&c.Energy, float64(v)/1e3, ret)
	}},
	{"nvmlDeviceGetCurrentClocksThrottleReasons", false, func(h nvml.Device, c *device.Card) nvml.Return {
		bits, ret := h.GetCurrentClocksThrottleReasons()
		if ret == nvml.SUCCESS {
			c.Throttled = throttled(bits)
		}
		return ret
	}},
	{"nvmlDeviceGetTemperature", false, func(h nvml.Device, c *device.Card) nvml.Return {
		v, ret := h.GetTemperature(nvml.TEMPERATURE_GPU)
		return entry(&c.Temperature, device.GPUSensor, float64(v), ret)
	}},
	{"nvmlDeviceGetClockInfo", false, func(h nvml.Device, c *device.Card) nvml.Return {
		v, ret := h.GetClockInfo(nvml.CLOCK_SM)
		return entry(&c.Clock, device.SMClock, float64(v)*1e6, ret)
	}},
	{"nvmlDeviceGetClockInfo", false, func(h nvml.Device, c *device.Card) nvml.Return {
		v, ret := h.GetClockInfo(nvml.CLOCK_MEM)
		return entry(&c.Clock, device.MemoryClock, float64(v)*1e6, ret)
	}},
	{"nvmlDeviceGetFieldValues", false, func(h nvml.Device, c *device.Card) nvml.Return {
		v, ret := field(h, nvml.FI_DEV_MEMORY_TEMP, 0)
		return entry(&c.Temperature, device.MemorySensor, float64(v), ret)
	}},
	{"nvmlDeviceGetEnforcedPowerLimit", true, func(h nvml.Device, c *device.Card) nvml.Return {
		v, ret := h.GetEnforcedPowerLimit()
		return number(&c.PowerLimit, float64(v)/1e3, ret)
	}},
	{"nvmlDeviceGetTotalEccErrors", true, func(h nvml.Device, c *device.Card) nvml.Return {
		v, ret := h.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.AGGREGATE_ECC)
		return entry(&c.ECC, device.Corrected, v, ret)
	}},
	{"nvmlDeviceGetTotalEccErrors", true, func(h nvml.Device, c *device.Card) nvml.Return {
		v, ret := h.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.AGGREGATE_ECC)
		return entry(&c.ECC, device.Uncorrected, v, ret)
	}},
	{"nvmlDeviceGetPcieThroughput", true, func(h nvml.Device, c *device.Card) nvml.Return {
		v, ret := h.GetPcieThroughput(nvml.PCIE_UTIL_TX_BYTES)
		return entry(&c.PCIe, device.Transmit, float64(v)*1e3, ret)
	}},
	{"nvmlDeviceGetPcieThroughput", true, func(h nvml.Device, c *device.Card) nvml.Return {
		v, ret := h.GetPcieThroughput(nvml.PCIE_UTIL_RX_BYTES)
		return entry(&c.PCIe, device.Receive, float64(v)*1e3, ret)
	}},
	{"nvmlDeviceGetFieldValues", true, func(h nvml.Device, c *device.Card) nvml.Return {
		v, ret := field(h, nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, allLinks)
		return entry(&c.NVLink, device.Transmit, v<<10, ret)
	}},
	{"nvmlDeviceGetFieldValues", true, func(h nvml.Device, c *device.Card) nvml.Return {
		v, ret := field(h, nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX, allLinks)
		return entry(&c.NVLink, device.Receive, v<<10, ret)
	}},
}

// allLinks asks for the sum over all links.
const allLinks = math.MaxUint32

func number(to **float64, v float64, ret nvml.Return) nvml.Return {
	if ret == nvml.SUCCESS {
		*to = &v
	}
	return ret
}

func entry[V any](to *map[string]V, key string, v V, ret nvml.Return) nvml.Return {
	if ret != nvml.SUCCESS {
		return ret
	}
	if *to == nil {
		*to = map[string]V{}
	}
	(*to)[key] = v
	return ret
}

// field returns a field that NVML keeps by number.
func field(h nvml.Device, id, scope uint32) (uint64, nvml.Return) {
	values := []nvml.FieldValue{{FieldId: id, ScopeId: scope}}
	if ret := h.GetFieldValues(values); ret != nvml.SUCCESS {
		return 0, ret
	}
	v := values[0]
	if ret := nvml.Return(v.NvmlReturn); ret != nvml.SUCCESS {
		return 0, ret
	}
	raw := binary.NativeEndian.Uint64(v.Value[:])
	switch nvml.ValueType(v.ValueType) {
	case nvml.VALUE_TYPE_UNSIGNED_INT:
		return uint64(uint32(raw)), nvml.SUCCESS
	case nvml.VALUE_TYPE_UNSIGNED_LONG, nvml.VALUE_TYPE_UNSIGNED_LONG_LONG:
		return raw, nvml.SUCCESS
	}
	return 0, nvml.ERROR_NOT_SUPPORTED
}

// throttled names the bits that mean throttling, see device.ThrottleReasons.
func throttled(bits uint64) map[string]bool {
	return map[string]bool{
		"power_cap":            bits&nvml.ClocksThrottleReasonSwPowerCap != 0,
		"thermal":              bits&nvml.ClocksThrottleReasonSwThermalSlowdown != 0,
		"hardware_thermal":     bits&nvml.ClocksThrottleReasonHwThermalSlowdown != 0,
		"hardware_power_brake": bits&nvml.ClocksThrottleReasonHwPowerBrakeSlowdown != 0,
		"hardware":             bits&nvml.ClocksThrottleReasonHwSlowdown != 0,
		"sync_boost":           bits&nvml.ClocksThrottleReasonSyncBoost != 0,
	}
}
