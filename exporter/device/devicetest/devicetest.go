// Package devicetest is the conformance suite of device.Device. Every adapter
// runs it: the simulated GPU directly and over its socket, and NVML, on a
// simulated driver always and on a real one where there is one.
package devicetest

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/laxity/laxity/exporter/device"
)

// Rig is a device under test, with what the suite may do to the machine behind it. The suite
// skips the tests that need a nil function.
type Rig struct {
	Device device.Device

	// Occupy makes a process hold a context and bytes of memory on one GPU, or on each of
	// two, visible in readings at once or soon. The function that it returns undoes this.
	Occupy func(t *testing.T, bytes uint64, uuids ...string) (pid int, release func())
	// Serve is Occupy on one GPU through an MPS server.
	Serve func(t *testing.T, bytes uint64, uuid string) (pid int, release func())
	// Fail makes the process list of one GPU fail. Lose stops one GPU from answering. Unload
	// unloads the whole driver. The function that each returns undoes this.
	Fail   func(t *testing.T, uuid string) (undo func())
	Lose   func(t *testing.T, uuid string) (undo func())
	Unload func(t *testing.T) (undo func())
}

// patience is how long the suite waits until a reading shows something.
const patience = 20 * time.Second

// Run checks every MUST of device.Device, and what all adapters have in common. newRig
// returns a new rig; it may skip the test.
func Run(t *testing.T, newRig func(t *testing.T) Rig) {
	tests := []struct {
		name string
		run  func(t *testing.T, rig Rig)
	}{
		{"identity", testIdentity},
		{"values", testValues},
		{"processes come and go", testProcesses},
		{"one process on two GPUs", testTwoGPUs},
		{"clients of MPS", testMPS},
		{"MIG", testMIG},
		{"failed process list is no empty list", testProcessesErr},
		{"lost GPU keeps its identity", testLost},
		{"driver reload", testReload},
		{"close", testClose},
		{"cards", testCards},
		{"lost card is absent", testLostCard},
		{"cards after a driver reload", testCardReload},
		{"close of the cards", testCardClose},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rig := newRig(t)
			t.Cleanup(func() { rig.Device.Close() })
			tt.run(t, rig)
		})
	}
}

func read(t *testing.T, d device.Device) device.Reading {
	t.Helper()
	r, err := d.Read(context.Background())
	if err != nil {
		t.Fatalf("Read: %v", err)
	}
	return r
}

// await reads until ok returns true.
func await(t *testing.T, d device.Device, what string, ok func(device.Reading) bool) device.Reading {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
		r := read(t, d)
		if ok(r) {
			return r
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %+v", what, patience, r)
		}
	}
}

func find(r device.Reading, uuid string) (device.GPU, bool) {
	for _, g := range r.GPUs {
		if g.UUID == uuid {
			return g, true
		}
	}
	return device.GPU{}, false
}

func processOf(g device.GPU, pid int) (device.Process, bool) {
	for _, p := range g.Processes {
		if p.PID == pid {
			return p, true
		}
	}
	return device.Process{}, false
}

func testIdentity(t *testing.T, rig Rig) {
	before := time.Now()
	first := read(t, rig.Device)
	if first.Time.Before(before.Add(-time.Second)) || first.Time.After(time.Now()) {
		t.Errorf("time of the reading is %v, it was asked for at %v", first.Time, before)
	}
	if len(first.GPUs) == 0 {
		t.Fatal("no GPU in the reading")
	}
	seen := map[string]bool{}
	for i, g := range first.GPUs {
		if g.UUID == "" || g.Name == "" || g.Driver == "" {
			t.Errorf("GPU %d has no UUID, name or driver: %+v", i, g)
		}
		if seen[g.UUID] {
			t.Errorf("UUID %s occurs twice", g.UUID)
		}
		seen[g.UUID] = true
		if i > 0 && g.Index < first.GPUs[i-1].Index {
			t.Errorf("GPUs are not ordered by index: %d after %d", g.Index, first.GPUs[i-1].Index)
		}
	}
	second := read(t, rig.Device)
	if len(second.GPUs) != len(first.GPUs) {
		t.Fatalf("%d GPUs, then %d", len(first.GPUs), len(second.GPUs))
	}
	for i := range second.GPUs {
		if second.GPUs[i].UUID != first.GPUs[i].UUID || second.GPUs[i].Index != first.GPUs[i].Index {
			t.Errorf("GPU %d changed: %+v, then %+v", i, first.GPUs[i], second.GPUs[i])
		}
	}
	if second.Time.Before(first.Time) {
		t.Errorf("time went back from %v to %v", first.Time, second.Time)
	}
}

func testValues(t *testing.T, rig Rig) {
	for _, g := range read(t, rig.Device).GPUs {
		if g.MemoryTotal == 0 || g.MemoryUsed > g.MemoryTotal {
			t.Errorf("%s: %d of %d bytes used", g.UUID, g.MemoryUsed, g.MemoryTotal)
		}
		if u := g.Utilization; !math.IsNaN(u) && !(u >= 0 && u <= 1) {
			t.Errorf("%s: utilisation %v is not in 0–1", g.UUID, u)
		}
		if g.ProcessesErr != nil {
			t.Errorf("%s: %v", g.UUID, g.ProcessesErr)
		}
		for _, p := range g.Processes {
			if p.PID <= 0 {
				t.Errorf("%s: PID %d", g.UUID, p.PID)
			}
			if u := p.SMUtilization; !math.IsNaN(u) && !(u >= 0 && u <= 1) {
				t.Errorf("%s: SM utilisation %v of %d is not in 0–1", g.UUID, u, p.PID)
			}
		}
	}
}

func testProcesses(t *testing.T, rig Rig) {
	if rig.Occupy == nil {
		t.Skip("no process can be started on this device")
	}
	const bytes = 256 << 20
	for _, g := range read(t, rig.Device).GPUs {
		pid, release := rig.Occupy(t, bytes, g.UUID)
		r := await(t, rig.Device, "process appears", func(r device.Reading) bool {
			now, _ := find(r, g.UUID)
			p, ok := processOf(now, pid)
			// A reading may take the memory just before the process appears.
			return ok && p.MemoryUsed >= bytes && now.MemoryUsed >= g.MemoryUsed+bytes
		})
		for _, other := range r.GPUs {
			if _, ok := processOf(other, pid); ok && other.UUID != g.UUID {
				t.Errorf("process %d is on %s, and is listed on %s", pid, g.UUID, other.UUID)
			}
		}
		release()
		await(t, rig.Device, "process leaves", func(r device.Reading) bool {
			now, _ := find(r, g.UUID)
			_, ok := processOf(now, pid)
			return !ok && now.ProcessesErr == nil
		})
	}
}

func testTwoGPUs(t *testing.T, rig Rig) {
	gpus := read(t, rig.Device).GPUs
	if rig.Occupy == nil || len(gpus) < 2 {
		t.Skip("needs two GPUs and a process that can be started on them")
	}
	const bytes = 256 << 20
	pid, release := rig.Occupy(t, bytes, gpus[0].UUID, gpus[1].UUID)
	await(t, rig.Device, "the process is listed on both", func(r device.Reading) bool {
		first, _ := find(r, gpus[0].UUID)
		second, _ := find(r, gpus[1].UUID)
		p, ok1 := processOf(first, pid)
		q, ok2 := processOf(second, pid)
		return ok1 && ok2 && p.MemoryUsed >= bytes && q.MemoryUsed >= bytes
	})
	release()
	await(t, rig.Device, "it leaves both", func(r device.Reading) bool {
		for _, g := range r.GPUs {
			if _, ok := processOf(g, pid); ok {
				return false
			}
		}
		return true
	})
}

// A client of MPS is listed as one, once, with its memory, beside processes that are none.
func testMPS(t *testing.T, rig Rig) {
	if rig.Occupy == nil || rig.Serve == nil {
		t.Skip("no client of MPS can be started on this device")
	}
	const bytes = 256 << 20
	for _, g := range read(t, rig.Device).GPUs {
		client, release := rig.Serve(t, bytes, g.UUID)
		other, releaseOther := rig.Occupy(t, bytes, g.UUID)
		r := await(t, rig.Device, "both appear", func(r device.Reading) bool {
			now, _ := find(r, g.UUID)
			p, ok := processOf(now, client)
			q, also := processOf(now, other)
			return ok && also && p.MemoryUsed >= bytes && q.MemoryUsed >= bytes
		})
		now, _ := find(r, g.UUID)
		alike, _ := processOf(now, other)
		times := 0
		for _, p := range now.Processes {
			if p.PID == client {
				times++
			}
			if p.MPS != (p.PID == client) && (p.PID == client || p.PID == other) {
				t.Errorf("%s: %+v; the client is %d", g.UUID, p, client)
			}
			if p.PID == client && p.MemoryUsed > alike.MemoryUsed+bytes/2 {
				t.Errorf("%s: its memory counts twice: %+v", g.UUID, p)
			}
		}
		if !now.TellsMPS {
			t.Errorf("%s: it does not say that it tells clients", g.UUID)
		}
		if times != 1 {
			t.Errorf("%s: the client is listed %d times", g.UUID, times)
		}
		release()
		releaseOther()
		await(t, rig.Device, "the client leaves", func(r device.Reading) bool {
			now, _ := find(r, g.UUID)
			_, ok := processOf(now, client)
			return !ok
		})
	}
}

func testMIG(t *testing.T, rig Rig) {
	r := read(t, rig.Device)
	instances := 0
	for _, g := range r.GPUs {
		if g.Parent == "" {
			continue
		}
		instances++
		if _, ok := find(r, g.Parent); ok {
			t.Errorf("card %s is listed beside its instance %s: its memory would count twice", g.Parent, g.UUID)
		}
		if g.Parent == g.UUID {
			t.Errorf("%s is its own parent", g.UUID)
		}
		for _, other := range r.GPUs {
			if (other.Parent == g.Parent) != (other.Index == g.Index) {
				t.Errorf("index is the card's: %+v and %+v", g, other)
			}
		}
	}
	if instances == 0 {
		t.Skip("no GPU is in MIG mode")
	}
}

func testProcessesErr(t *testing.T, rig Rig) {
	if rig.Fail == nil {
		t.Skip("the process list of this device cannot be made to fail")
	}
	gpus := read(t, rig.Device).GPUs
	undo := rig.Fail(t, gpus[0].UUID)
	r := read(t, rig.Device)
	g, ok := find(r, gpus[0].UUID)
	if !ok || g.ProcessesErr == nil || len(g.Processes) > 0 {
		t.Errorf("want the GPU with ProcessesErr and without processes, got %+v", g)
	}
	if g.MemoryTotal == 0 {
		t.Error("memory does not depend on the process list")
	}
	for _, other := range r.GPUs {
		if other.UUID != g.UUID && other.ProcessesErr != nil {
			t.Errorf("%s: the failure of another GPU is none of it: %v", other.UUID, other.ProcessesErr)
		}
	}
	undo()
	if g, _ := find(read(t, rig.Device), gpus[0].UUID); g.ProcessesErr != nil {
		t.Errorf("did not recover: %v", g.ProcessesErr)
	}
}

func testLost(t *testing.T, rig Rig) {
	gpus := read(t, rig.Device).GPUs
	if rig.Lose == nil || len(gpus) < 2 {
		t.Skip("needs two GPUs, of which one can be lost")
	}
	undo := rig.Lose(t, gpus[0].UUID)
	for range 2 { // before and after the adapter searched for it again
		r := read(t, rig.Device)
		g, ok := find(r, gpus[0].UUID)
		if !ok || g.Index != gpus[0].Index || g.Parent != gpus[0].Parent || g.Name == "" {
			t.Fatalf("the lost GPU must keep its identity: %+v in %+v", g, r)
		}
		if g.ProcessesErr == nil || g.MemoryTotal != 0 || g.MemoryUsed != 0 || !math.IsNaN(g.Utilization) {
			t.Errorf("nothing is known of a lost GPU: %+v", g)
		}
		if other, ok := find(r, gpus[1].UUID); !ok || other.ProcessesErr != nil || other.MemoryTotal == 0 {
			t.Errorf("the other GPU must go on: %+v", other)
		}
	}
	undo()
	await(t, rig.Device, "GPU is back", func(r device.Reading) bool {
		g, _ := find(r, gpus[0].UUID)
		return g.ProcessesErr == nil && g.MemoryTotal > 0
	})
}

func testReload(t *testing.T, rig Rig) {
	if rig.Unload == nil {
		t.Skip("the driver of this device cannot be unloaded")
	}
	before := read(t, rig.Device)
	undo := rig.Unload(t)
	for range 3 {
		if r, err := rig.Device.Read(context.Background()); err == nil {
			t.Fatalf("read without a driver: %+v", r)
		} else if len(r.GPUs) > 0 {
			t.Errorf("a Read that fails returned a reading: %+v", r)
		}
	}
	undo()
	var after device.Reading
	err := errors.New("not read")
	for deadline := time.Now().Add(patience); err != nil; time.Sleep(2 * time.Millisecond) {
		if after, err = rig.Device.Read(context.Background()); err != nil && time.Now().After(deadline) {
			t.Fatalf("did not recover: %v", err)
		}
	}
	if len(after.GPUs) != len(before.GPUs) {
		t.Errorf("%d GPUs before, %d after", len(before.GPUs), len(after.GPUs))
	}
}

func testClose(t *testing.T, rig Rig) {
	read(t, rig.Device)
	for range 2 {
		if err := rig.Device.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	if _, err := rig.Device.Read(context.Background()); err == nil {
		t.Error("Read after Close must fail")
	}
}
