//go:build linux && cgo

package nvml

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/laxity/laxity/exporter/device"
)

// mostXids bounds how many errors one reading takes from the driver's queue, so that a card that
// reports without end does not stop the readings.
const mostXids = 256

// Cards implements device.WithCards. The reader initialises NVML for itself: NVML counts those who
// use it, and its calls are safe beside each other.
func (r *reader) Cards() (device.Cards, error) { return openCards(r.lib, system, r.now) }

// cardReader is the device.Cards of this package.
type cardReader struct {
	lib    nvml.Interface
	trace  tracing
	now    func() time.Time
	ready  bool // Init succeeded and Shutdown was not called: NVML may be called
	closed bool

	has    map[string]bool // the functions of this NVML, of those that queries need
	cards  []*card
	listed time.Time
	events nvml.EventSet // nil: errors are not reported
}

func openCards(lib nvml.Interface, trace tracing, now func() time.Time) (device.Cards, error) {
	r := &cardReader{lib: lib, trace: trace, now: now}
	if err := r.start(); err != nil {
		return nil, err
	}
	return r, nil
}

// Read implements device.Cards. ctx does not interrupt a driver call.
func (r *cardReader) Read(context.Context) (device.CardReading, error) {
	if r.closed {
		return device.CardReading{}, errors.New("NVML: read after Close")
	}
	if !r.ready {
		if err := r.start(); err != nil {
			return device.CardReading{}, err
		}
	}
	reading, err := r.read()
	if err != nil {
		r.stop()
		return device.CardReading{}, err
	}
	return reading, nil
}

// Close implements device.Cards.
func (r *cardReader) Close() error {
	r.closed = true
	r.stop()
	return nil
}

func (r *cardReader) start() error {
	if ret := r.lib.Init(); ret != nvml.SUCCESS {
		return failed("initialise", ret)
	}
	r.ready, r.has = true, map[string]bool{}
	names := []string{"nvmlEventSetCreate", "nvmlEventSetWait_v2", "nvmlDeviceRegisterEvents", processSamples}
	for _, q := range queries {
		names = append(names, q.symbol)
	}
	for _, name := range names {
		r.has[name] = r.lib.Extensions().LookupSymbol(name) == nil
	}
	return nil
}

// stop releases the driver. The counts of errors stay: they are since the reader was opened.
func (r *cardReader) stop() {
	if r.ready {
		r.ready = false
		if r.events != nil {
			_ = r.events.Free() // a driver that is gone cannot free it
		}
		_ = r.lib.Shutdown()
	}
	r.events, r.listed = nil, time.Time{}
	for _, c := range r.cards {
		c.handle = nil
		c.switches.close()
	}
}

func (r *cardReader) read() (device.CardReading, error) {
	if now := r.now(); r.listed.IsZero() || now.Sub(r.listed) >= identitiesEvery {
		if err := r.list(now); err != nil {
			return device.CardReading{}, err
		}
	}
	r.trace.traceAll(r.cards, r.now)
	now := r.now()
	r.takeXids()
	reading := device.CardReading{Time: now}
	for _, c := range r.cards {
		if c.handle == nil {
			continue
		}
		out, ret := c.read(r.has, now)
		if gone(ret) {
			return device.CardReading{}, failed("read a card", ret)
		}
		if ret != nvml.SUCCESS {
			c.switches.close()
			c.handle = nil // listed again later
			r.listed = now.Add(relistAfter - identitiesEvery)
			continue
		}
		reading.Cards = append(reading.Cards, out)
	}
	if len(r.cards) > 0 && len(reading.Cards) == 0 {
		return device.CardReading{}, errors.New("NVML: no card answers")
	}
	return reading, nil
}

// list finds the cards. It keeps what was counted of one that is still there.
func (r *cardReader) list(now time.Time) error {
	count, ret := r.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return failed("count the GPUs", ret)
	}
	known := map[string]*card{}
	for _, c := range r.cards {
		known[c.uuid] = c
		c.handle = nil
	}
	for i := range count {
		handle, ret := r.lib.DeviceGetHandleByIndex(i)
		var uuid string
		if ret == nvml.SUCCESS {
			uuid, ret = handle.GetUUID()
		}
		if gone(ret) {
			return failed("find a GPU", ret)
		}
		if ret != nvml.SUCCESS {
			continue
		}
		c := known[uuid]
		if c == nil {
			c = &card{uuid: uuid}
			r.cards = append(r.cards, c)
		}
		c.handle, c.index = handle, i
		mode, _, ret := handle.GetMigMode()
		c.mig = ret == nvml.SUCCESS && mode == nvml.DEVICE_MIG_ENABLE
	}
	r.listed = now
	r.watch()
	return nil
}

// watch asks for the errors of the cards that are not watched yet.
func (r *cardReader) watch() {
	if !r.has["nvmlEventSetCreate"] || !r.has["nvmlEventSetWait_v2"] || !r.has["nvmlDeviceRegisterEvents"] {
		return
	}
	if r.events == nil {
		events, ret := r.lib.EventSetCreate()
		if ret != nvml.SUCCESS {
			return
		}
		r.events = events
		for _, c := range r.cards {
			c.watched = false
		}
	}
	for _, c := range r.cards {
		if c.handle == nil || c.watched {
			continue
		}
		c.watched = c.handle.RegisterEvents(nvml.EventTypeXidCriticalError, r.events) == nvml.SUCCESS
		if c.watched && c.xids == nil {
			c.xids, c.lastXids = map[uint64]uint64{}, map[uint64]time.Time{}
		}
	}
}

// takeXids takes the errors that the driver has queued. It does not wait for any.
func (r *cardReader) takeXids() {
	if r.events == nil {
		return
	}
	for range mostXids {
		event, ret := r.events.Wait(0)
		if ret != nvml.SUCCESS {
			return // as a rule: none is queued
		}
		if event.EventType != nvml.EventTypeXidCriticalError || event.Device == nil {
			continue
		}
		uuid, ret := event.Device.GetUUID()
		for _, c := range r.cards {
			if ret == nvml.SUCCESS && c.uuid == uuid && c.xids != nil {
				c.xids[event.EventData]++
				c.lastXids[event.EventData] = r.now()
			}
		}
	}
}

// card is one card and what was read of it.
type card struct {
	handle  nvml.Device // nil when it does not answer
	uuid    string
	index   int
	mig     bool
	watched bool
	xids    map[uint64]uint64
	// lastXids outlives readings that fail: an error does not happen anew when the card answers again.
	lastXids map[uint64]time.Time
	slow     device.Card // answers of the slow queries
	slowAt   time.Time
	sm       samples

	switches switches
}

// read asks the card everything. The result is not SUCCESS when the card as a whole does not answer.
func (c *card) read(has map[string]bool, now time.Time) (device.Card, nvml.Return) {
	if now.Sub(c.slowAt) >= slowEvery {
		c.slow, c.slowAt = device.Card{}, now
		if ret := c.ask(&c.slow, has, true); ret != nvml.SUCCESS {
			return device.Card{}, ret
		}
	}
	out := c.slow
	out.UUID, out.Index, out.MIG, out.Xids = c.uuid, c.index, c.mig, maps.Clone(c.xids)
	out.LastXids = maps.Clone(c.lastXids)
	if ret := c.ask(&out, has, false); ret != nvml.SUCCESS {
		return device.Card{}, ret
	}
	if !c.mig && has[processSamples] {
		c.sm.take(c.handle, now)
		out.SM = c.sm.all()
	}
	c.switches.report(&out)
	return out, nvml.SUCCESS
}

// ask makes the queries of one kind. It stops only when the card, or NVML as a whole, is lost.
func (c *card) ask(out *device.Card, has map[string]bool, slow bool) nvml.Return {
	for _, q := range queries {
		if q.slow != slow || !has[q.symbol] {
			continue
		}
		if ret := q.read(c.handle, out); gone(ret) || ret == nvml.ERROR_GPU_IS_LOST {
			return ret
		}
	}
	return nvml.SUCCESS
}
