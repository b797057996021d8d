//go:build linux && cgo

package nvml

import (
	"strconv"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/laxity/laxity/exporter/device"
)

// list finds the cards and MIG instances. It keeps what it knew of a unit that is still there
// (the time of its last samples).
func (r *reader) list(now time.Time) error {
	count, ret := r.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return failed("count the GPUs", ret)
	}
	before := map[string]*unit{}
	for _, u := range r.units {
		before[u.info.UUID] = u
	}
	units := []*unit{} // not nil: no GPU is a valid answer
	silent := 0
	for i := range count {
		found, ret := r.card(i)
		if gone(ret) {
			return failed("find a GPU", ret)
		}
		if ret != nvml.SUCCESS && len(found) == 0 {
			silent++
			if ret != nvml.ERROR_NO_PERMISSION { // without permission it is not ours to use
				found = append(found, unidentified(i, r.driver, ret))
			}
		}
		for _, u := range found {
			if old := before[u.info.UUID]; old != nil {
				u.sm = old.sm
			}
		}
		units = append(units, found...)
	}
	if count > 0 && silent == count {
		return failed("find a GPU", nvml.ERROR_UNKNOWN)
	}
	r.units, r.listed = units, now
	r.known = map[int][]device.GPU{}
	for _, u := range units {
		r.known[u.info.Index] = append(r.known[u.info.Index], u.info)
	}
	return nil
}

// card returns the units of the i-th card that work can run on. Where the card does not
// answer it returns the units known before, if any, and why it does not answer.
func (r *reader) card(i int) ([]*unit, nvml.Return) {
	info := device.GPU{Index: i, Driver: r.driver}
	handle, ret := r.lib.DeviceGetHandleByIndex(i)
	if ret == nvml.SUCCESS {
		info.UUID, ret = handle.GetUUID()
	}
	if ret == nvml.SUCCESS {
		info.Name, ret = handle.GetName()
	}
	if ret == nvml.SUCCESS {
		mode, ret := handle.GetComputeMode()
		info.Exclusive = ret == nvml.SUCCESS && mode != nvml.COMPUTEMODE_DEFAULT
		return (&unit{handle: handle, info: info, mps: r.mps}).instances(), nvml.SUCCESS
	}
	var units []*unit
	for _, old := range r.known[i] {
		units = append(units, &unit{info: old, lost: ret, mps: r.mps})
	}
	return units, ret
}

// unidentified is a card that has not answered since this program began.
func unidentified(i int, driver string, ret nvml.Return) *unit {
	return &unit{info: device.GPU{UUID: "unknown-" + strconv.Itoa(i), Index: i, Driver: driver}, lost: ret}
}

// instances returns the units that work can run on: the card itself, or its MIG instances.
func (u *unit) instances() []*unit {
	mode, _, ret := u.handle.GetMigMode()
	if ret != nvml.SUCCESS || mode != nvml.DEVICE_MIG_ENABLE {
		return []*unit{u}
	}
	most, ret := u.handle.GetMaxMigDeviceCount()
	if ret != nvml.SUCCESS {
		most = 0
	}
	var units []*unit
	for i := range most {
		handle, ret := u.handle.GetMigDeviceHandleByIndex(i)
		if ret != nvml.SUCCESS {
			continue // no instance in this slot
		}
		info := u.info
		info.Parent = u.info.UUID
		if info.UUID, ret = handle.GetUUID(); ret != nvml.SUCCESS {
			continue
		}
		if name, ret := handle.GetName(); ret == nvml.SUCCESS {
			info.Name = name
		}
		units = append(units, &unit{handle: handle, info: info, mps: u.mps})
	}
	return units
}
