package collector

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/laxity/laxity/exporter/task"
)

// cards sends the cards' condition, and who used them. What a card does not report is absent.
func cards(out *scrape, s *task.Snapshot) {
	live := map[string]string{} // id by name
	for _, c := range s.Containers {
		live[c.Name] = c.ID
	}
	for _, c := range s.Cards {
		for _, v := range []struct {
			value *float64
			send  func(float64)
		}{
			{c.Power, func(v float64) { out.gauge(gpuPower, v, c.UUID) }},
			{c.PowerLimit, func(v float64) { out.gauge(gpuPowerLimit, v, c.UUID) }},
			{c.Energy, func(v float64) { out.counter(gpuEnergy, v, c.UUID) }},
			{c.OtherSeconds, func(v float64) { out.counter(otherSeconds, v, c.UUID) }},
		} {
			if v.value != nil {
				v.send(*v.value)
			}
		}
		if c.Switches != nil {
			out.gauge(gpuSwitches, c.Switches.Rate, c.UUID)
		}
		each(c.Temperature, func(sensor string, v float64) { out.gauge(gpuTemp, v, c.UUID, sensor) })
		each(c.Clock, func(clock string, v float64) { out.gauge(gpuClock, v, c.UUID, clock) })
		each(c.Throttled, func(reason string, on bool) { out.gauge(gpuThrottled, flag(on), c.UUID, reason) })
		each(c.Xids, func(xid, n uint64) { out.counter(gpuXids, float64(n), c.UUID, strconv.FormatUint(xid, 10)) })
		each(c.LastXids, func(xid uint64, at time.Time) {
			out.gauge(gpuLastXid, unixSeconds(at), c.UUID, strconv.FormatUint(xid, 10))
		})
		each(c.ECC, func(kind string, n uint64) { out.counter(gpuECC, float64(n), c.UUID, kind) })
		each(c.PCIe, func(direction string, v float64) { out.gauge(gpuPCIe, v, c.UUID, direction) })
		each(c.NVLink, func(direction string, n uint64) { out.counter(gpuNVLink, float64(n), c.UUID, direction) })
		each(c.Unattributed, func(reason string, v float64) { out.counter(unattributedEnergy, v, c.UUID, reason) })
		uses(out, c, live)
	}
}

// each calls f for what is in m, in order.
func each[K cmp.Ordered, V any](m map[K]V, f func(K, V)) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		f(k, m[k])
	}
}

// uses sends what containers had of a card. Where several have had a name, the one that is there counts,
// else the one that was seen last, which is the first in the list: two series must not have the same labels.
func uses(out *scrape, c task.Card, live map[string]string) {
	sent := map[string]bool{}
	for _, u := range c.Uses {
		name := valid(u.Container)
		if id := live[u.Container]; sent[name] || id != "" && id != u.ContainerID {
			continue
		}
		sent[name] = true
		out.of(u.Container)
		out.counter(containerSeconds, u.GPUSeconds, name, c.UUID)
		if u.Energy != nil {
			out.counter(containerEnergy, *u.Energy, name, c.UUID)
		}
	}
	out.of("")
}
