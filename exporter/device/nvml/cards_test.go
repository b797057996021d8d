//go:build linux && cgo

package nvml

import (
	"maps"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/exporter/device/sim"
	"github.com/laxity/laxity/internal/rm"
)

// cardRig is a reader of simulated cards, with a clock.
type cardRig struct {
	gpu *sim.GPU
	lib *fakeLibrary
	now time.Time
	device.Cards
	traces  map[string]*fakeTrace // by UUID, those that were opened last
	stall   time.Duration         // how much longer a window is
	refused error                 // what opening a trace answers
	opened  int
}

// fakeTrace is the trace of a card whose switches the test tells.
type fakeTrace struct {
	list, next []rm.Switch // of this window and the next
	err        error
	on, closed bool
	starts     int
}

func (f *fakeTrace) Start() error {
	f.on = true
	f.starts++
	return nil
}

func (f *fakeTrace) Stop() ([]rm.Switch, bool, error) {
	list := f.list
	f.list, f.next, f.on = f.next, nil, false
	return list, false, f.err
}

func (f *fakeTrace) Close() { f.on, f.closed = false, true }

func (r *cardRig) tracing() tracing {
	return tracing{
		open: func(uuid string) (trace, error) {
			r.opened++
			if r.refused != nil {
				return nil, r.refused
			}
			f := &fakeTrace{}
			r.traces[uuid] = f
			return f, nil
		},
		sleep: func(d time.Duration) {
			on := false
			for _, f := range r.traces {
				on = on || f.on
			}
			if on {
				r.now = r.now.Add(d + r.stall)
			}
		},
	}
}

func newCardRig(t *testing.T, prepare func(*fakeLibrary)) *cardRig {
	t.Helper()
	gpu, _ := newSim(t)
	r := &cardRig{gpu: gpu, lib: newFake(gpu), now: time.Now(), traces: map[string]*fakeTrace{}}
	if prepare != nil {
		prepare(r.lib)
	}
	var err error
	if r.Cards, err = openCards(r.lib, r.tracing(), func() time.Time { return r.now }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func (r *cardRig) first(t *testing.T) device.Card {
	t.Helper()
	reading, err := r.Read(t.Context())
	if err != nil || len(reading.Cards) != 2 {
		t.Fatalf("%d cards, %v; want 2", len(reading.Cards), err)
	}
	return reading.Cards[0]
}

func TestCardReportsEverything(t *testing.T) {
	r := newCardRig(t, nil)
	uuid := r.gpu.UUIDs()[0]
	for _, err := range []error{r.gpu.AddECC(uuid, device.Corrected, 3), r.gpu.Throttle(uuid, "hardware_thermal", true)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	c := r.first(t)
	if c.Power == nil || *c.Power != 75 || c.PowerLimit == nil || *c.PowerLimit != 700 || c.Energy == nil {
		t.Errorf("power %v of %v, energy %v", c.Power, c.PowerLimit, c.Energy)
	}
	if want := map[string]float64{"gpu": 35, "memory": 40}; !maps.Equal(c.Temperature, want) {
		t.Errorf("temperature %v, want %v", c.Temperature, want)
	}
	if want := map[string]float64{"sm": 345e6, "memory": 3201e6}; !maps.Equal(c.Clock, want) {
		t.Errorf("clock %v, want %v", c.Clock, want)
	}
	if want := map[string]uint64{"corrected": 3, "uncorrected": 0}; !maps.Equal(c.ECC, want) {
		t.Errorf("ECC %v, want %v", c.ECC, want)
	}
	if want := map[string]float64{"transmit": 1e6, "receive": 2e6}; !maps.Equal(c.PCIe, want) {
		t.Errorf("PCIe %v, want %v", c.PCIe, want)
	}
	for _, reason := range device.ThrottleReasons {
		if on, known := c.Throttled[reason]; !known || on != (reason == "hardware_thermal") {
			t.Errorf("throttled for %s: %v, known: %v", reason, on, known)
		}
	}
	if c.NVLink != nil {
		t.Errorf("NVLink %v of a card without", c.NVLink)
	}
}

// One query that fails leaves the others; what it asked for is absent, not 0.
func TestFailedQueryIsAbsent(t *testing.T) {
	for _, ret := range []nvml.Return{nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_UNKNOWN, nvml.ERROR_NO_PERMISSION} {
		r := newCardRig(t, func(lib *fakeLibrary) {
			lib.fail = map[string]nvml.Return{"power": ret, "ecc": ret, "register": ret}
		})
		c := r.first(t)
		if c.Power != nil || c.ECC != nil || c.Xids != nil {
			t.Errorf("%v: power %v, ECC %v, Xids %v; want none", ret, c.Power, c.ECC, c.Xids)
		}
		if c.Energy == nil || len(c.Temperature) != 2 || len(c.Clock) != 2 || c.Throttled == nil || c.PCIe == nil || c.SM == nil {
			t.Errorf("%v: the others are missing: %+v", ret, c)
		}
	}
}

// A function that the library lacks is never called: that would end the process.
func TestOldLibrary(t *testing.T) {
	r := newCardRig(t, func(lib *fakeLibrary) { lib.missing = "nvmlDeviceGetTotalEnergyConsumption" })
	if c := r.first(t); c.Energy != nil || c.Power == nil {
		t.Errorf("energy %v, power %v", c.Energy, c.Power)
	}
	r = newCardRig(t, func(lib *fakeLibrary) { lib.missing = "nvmlEventSetWait_v2" })
	if c := r.first(t); c.Xids != nil || r.lib.events != nil {
		t.Errorf("Xids %v", c.Xids)
	}
}

func TestSlowQueriesAreRare(t *testing.T) {
	r := newCardRig(t, nil)
	for range 5 {
		r.first(t)
		r.now = r.now.Add(time.Second)
	}
	if r.lib.pcie != 4 { // two cards, two directions
		t.Errorf("PCIe was sampled %d times in 4 s, want 4", r.lib.pcie)
	}
	if c := r.first(t); r.lib.pcie != 8 || c.PCIe == nil {
		t.Errorf("PCIe was sampled %d times in 5 s, want 8", r.lib.pcie)
	}
}

func TestXidsAreCounted(t *testing.T) {
	r := newCardRig(t, nil)
	if c := r.first(t); c.Xids == nil || len(c.Xids) != 0 {
		t.Fatalf("before any: %v, want an empty count", c.Xids)
	}
	report := func(i int, xid uint64) {
		handle, _ := r.lib.DeviceGetHandleByIndex(i)
		r.lib.events.queue = append(r.lib.events.queue, nvml.EventData{Device: handle, EventType: nvml.EventTypeXidCriticalError, EventData: xid})
	}
	report(0, 13)
	report(0, 13)
	report(1, 79)
	c := r.first(t)
	if !maps.Equal(c.Xids, map[uint64]uint64{13: 2}) || c.LastXids[13].IsZero() {
		t.Errorf("%v, want two of 13; last %v", c.Xids, c.LastXids)
	}
	last := c.LastXids[13]
	// The counts outlive the driver, and new errors are seen after it.
	old := r.lib.events
	r.gpu.UnloadDriver()
	if _, err := r.Read(t.Context()); err == nil || !old.freed {
		t.Errorf("read without a driver: %v, events freed: %v", err, old.freed)
	}
	r.gpu.LoadDriver("")
	r.first(t)
	report(0, 31)
	if c := r.first(t); !maps.Equal(c.Xids, map[uint64]uint64{13: 2, 31: 1}) || !c.LastXids[13].Equal(last) || c.LastXids[31].Before(last) {
		t.Errorf("%v, want two of 13 and one of 31; last %v, %v", c.Xids, c.LastXids, last)
	}
}

func TestSamplesOfProcesses(t *testing.T) {
	r := newCardRig(t, nil)
	r.lib.samples = func(uint64) ([]nvml.ProcessUtilizationSample, nvml.Return) {
		return []nvml.ProcessUtilizationSample{sample(7, r.now, 40), sample(7, r.now.Add(time.Millisecond), 60), sample(8, r.now, 20)}, nvml.SUCCESS
	}
	if c := r.first(t); !maps.Equal(c.SM, map[int]float64{7: 0.5, 8: 0.2}) {
		t.Errorf("%v", c.SM)
	}
	if c := r.first(t); c.SM == nil || len(c.SM) != 0 { // the same samples again
		t.Errorf("%v, want that nobody computed", c.SM)
	}
	r.lib.samples = func(uint64) ([]nvml.ProcessUtilizationSample, nvml.Return) { return nil, nvml.ERROR_NOT_SUPPORTED }
	if c := r.first(t); c.SM != nil {
		t.Errorf("%v, want that it is not known", c.SM)
	}
}
