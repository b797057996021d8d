package ledger_test

import (
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/allocator"
	"github.com/laxity/laxity/actuator/allocator/facts"
	"github.com/laxity/laxity/actuator/allocator/ledger"
	"github.com/laxity/laxity/actuator/enforce/memory"
)

const g0 = "GPU-0"

// desk is a ledger with a clock of its own.
type desk struct {
	*ledger.Ledger
	t    *testing.T
	now  time.Time
	dead map[int]bool
}

func newDesk(t *testing.T) *desk {
	d := &desk{t: t, now: time.Unix(1000, 0), dead: map[int]bool{}}
	d.Ledger = ledger.New(ledger.Options{Now: func() time.Time { return d.now }, Alive: func(pid, _ int) bool { return !d.dead[pid] }})
	return d
}

// facts of a card of 512 MB, of which one is reserved, and of these containers.
func (d *desk) facts(containers ...facts.Container) facts.Facts {
	var used uint64
	for _, b := range containers {
		used += b.Held[g0]
	}
	return facts.Facts{Time: d.now, GPUs: []facts.GPU{{UUID: g0, Total: 512, Used: used}}, Containers: containers,
		MaxWait: time.Minute, Patience: time.Second}
}

func box(id string, limit, held uint64) facts.Container {
	return facts.Container{ID: id, Name: id, Limit: limit, Held: map[string]uint64{g0: held}}
}

func (d *desk) ask(id string, pid int, bytes, held uint64) memory.Answer {
	return d.Decide(memory.Request{ContainerID: id, PID: pid, TID: pid, GPU: g0, Bytes: bytes, Held: held, Since: d.now, Function: "cuMemAlloc_v2"})
}

func (d *desk) want(a memory.Answer, v memory.Verdict) {
	d.t.Helper()
	if a.Verdict != v || a.Reason == "" {
		d.t.Errorf("%v: %s; want %v", a.Verdict, a.Reason, v)
	}
}

func TestGrantsCountBeforeTheDeviceShowsThem(t *testing.T) {
	d := newDesk(t)
	d.Update(d.facts(box("a", 300, 0), box("b", 300, 0)))
	d.want(d.ask("a", 1, 300, 0), memory.Grant)
	d.want(d.ask("b", 2, 300, 0), memory.Wait)
	d.now = d.now.Add(time.Second)
	if again := d.Update(d.facts(box("a", 300, 300), box("b", 300, 0))); again {
		t.Error("nothing has changed for b")
	}
	d.now = d.now.Add(time.Second)
	if again := d.Update(d.facts(box("b", 300, 0))); !again { // a has ended
		t.Error("b can go on")
	}
	a := d.Decide(memory.Request{ContainerID: "b", PID: 2, TID: 2, GPU: g0, Bytes: 300, Since: time.Unix(1000, 0)})
	d.want(a, memory.Grant)
	events := d.Events()
	if len(events) != 2 || events[0].Verdict != allocator.Wait || events[1].Verdict != allocator.Grant || events[1].Waited != 2*time.Second {
		t.Errorf("%+v", events)
	}
}

func TestADeadThreadWaitsNoMore(t *testing.T) {
	d := newDesk(t)
	d.Update(d.facts(box("a", 400, 300), box("b", 300, 0)))
	d.want(d.ask("b", 2, 300, 0), memory.Wait)
	if w := d.Waiting(); len(w) != 1 || w[0].Request.Container != "b" {
		t.Errorf("%+v", w)
	}
	d.dead[2] = true
	d.Update(d.facts(box("a", 400, 300), box("b", 300, 0)))
	if w := d.Waiting(); len(w) != 0 {
		t.Errorf("%+v", w)
	}
}

// The guard ends a call without another question when its process is asked to end, when the GPU cannot be read, or
// when the guardian continued it. Its thread may live on. Its request must not keep room from others.
func TestWhoDoesNotAskAgainWaitsNoMore(t *testing.T) {
	for name, tt := range map[string]struct {
		asksAgain bool
		want      memory.Verdict // of another request, which has room beside what is held
	}{
		"it is silent":  {false, memory.Grant},
		"it asks again": {true, memory.Wait},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			update := func(held uint64) bool {
				return d.Update(d.facts(box("a", 400, held), box("b", 300, 0), box("c", 250, 0)))
			}
			update(400)
			began := d.now
			b := memory.Request{ContainerID: "b", PID: 2, TID: 2, GPU: g0, Bytes: 300, Since: began}
			d.want(d.Decide(b), memory.Wait)
			d.now = d.now.Add(2 * time.Second) // a slow reading
			if tt.asksAgain {
				d.want(d.Decide(b), memory.Wait)
			}
			update(400)
			if w := d.Waiting(); len(w) != 1 {
				t.Errorf("it may still be asked about: %+v", w)
			}
			d.now = d.now.Add(2 * time.Second)
			update(0) // there is room for one of the two
			d.want(d.ask("c", 3, 250, 0), tt.want)
		})
	}
}

// When cards are not divided any more, who has no limit is released by the guard, and waits
// no more.
func TestWhoIsNotAskedAnyMoreWaitsNoMore(t *testing.T) {
	d := newDesk(t)
	f := d.facts(box("a", 0, 250), box("b", 0, 250))
	f.Share = allocator.Fair
	d.Update(f)
	d.want(d.ask("b", 2, 100, 250), memory.Wait)
	f.Share = allocator.ByLimit
	d.Update(f)
	if w := d.Waiting(); len(w) != 0 {
		t.Errorf("%+v", w)
	}
}

// Memory of a process that the device does not list yet is nobody's for a moment.
func TestOwnersThatAreNotKnownYet(t *testing.T) {
	d := newDesk(t)
	d.Update(d.facts(box("a", 500, 0)))
	d.now = d.now.Add(100 * time.Millisecond)
	f := d.facts(box("a", 500, 0))
	f.GPUs[0].Used = 400
	d.Update(f)
	d.want(d.ask("a", 1, 200, 0), memory.Grant)
	d.now = d.now.Add(3 * time.Second)
	f.Time = d.now
	d.Update(f)
	d.want(d.ask("a", 2, 200, 0), memory.Deny)
}

func TestUnmanagedMemoryIsGone(t *testing.T) {
	d := newDesk(t)
	f := d.facts(box("a", 500, 0))
	f.GPUs[0].Used = 400
	d.Update(f)
	a := d.ask("a", 1, 200, 0)
	d.want(a, memory.Deny)
	if !strings.Contains(a.Reason, "111 bytes can be had") {
		t.Error(a.Reason)
	}
}

// Where all claims fit nobody asks; when one more comes, what may have been taken
// under a ceiling counts until the device has been read.
func TestCeiling(t *testing.T) {
	d := newDesk(t)
	d.Update(d.facts(box("a", 300, 10)))
	if c := d.Ceiling("a", g0, 300); c != 300 {
		t.Errorf("alone: %d", c)
	}
	if p := d.Parts(); len(p) != 1 || p[0].Held != 10 { // it may take 300, and holds 10
		t.Errorf("%+v", p)
	}
	if again := d.Update(d.facts(box("a", 300, 10), box("b", 300, 0))); !again {
		t.Error("the ceiling has to be withdrawn")
	}
	if c := d.Ceiling("a", g0, 300); c != 0 {
		t.Errorf("with b: %d", c)
	}
	d.want(d.ask("b", 2, 300, 0), memory.Wait) // a may hold 300 by now
	d.now = d.now.Add(time.Second)
	d.Update(d.facts(box("a", 300, 10), box("b", 300, 0)))
	d.want(d.ask("b", 2, 200, 0), memory.Grant) // it holds 10 after all, and can end first
}

// Beside one without a limit nobody has to ask as long as there is room beside what it
// holds.
func TestCeilingBesideOneWithoutALimit(t *testing.T) {
	const limit = 300
	for name, test := range map[string]struct {
		holds, now uint64 // without a limit: by the snapshot, and by what the guard sees after it
		want       uint64
	}{
		"there is room":     {100, 100, limit},
		"there is little":   {200, 200, 0},
		"there is none":     {250, 250, 0},
		"it has just grown": {100, 250, 0},
		"it has shrunk":     {150, 100, limit},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			d.Update(d.facts(box("a", limit, 10), box("free", 0, test.holds)))
			d.now = d.now.Add(10 * time.Millisecond)
			d.Observe(memory.Sight{At: d.now, Used: map[string]uint64{g0: 50 + test.now}, Held: map[string]map[string]uint64{"a": {g0: 50}}})
			if c := d.Ceiling("a", g0, limit); c != test.want {
				t.Errorf("it may have %d without asking; want %d", c, test.want)
			}
		})
	}
}

// A container that begins under a ceiling, and has to ask since another one came,
// is asked about with what it holds, not with all that it might have taken.
func TestItsOwnCeilingIsNotHeld(t *testing.T) {
	d := newDesk(t)
	look := func() {
		d.now = d.now.Add(10 * time.Millisecond)
		d.Observe(memory.Sight{At: d.now, Held: map[string]map[string]uint64{"a": {g0: 10}}})
		d.now = d.now.Add(10 * time.Millisecond)
	}
	d.Update(d.facts(box("a", 300, 10)))
	d.Ceiling("a", g0, 300)
	look()
	d.want(d.ask("a", 1, 200, 10), memory.Grant) // it allocates and frees faster than the kernel is told
	d.Update(d.facts(box("a", 300, 10), box("b", 400, 0)))
	d.want(d.ask("a", 1, 200, 10), memory.Wait) // what it holds was read while it could take more
	look()
	d.want(d.ask("a", 1, 200, 10), memory.Grant)
	d.want(d.ask("b", 2, 250, 0), memory.Wait)
}

// A grant counts for as long as its call may take: until the guard looks, which sees
// the calls that are under way, or the thread asks again, or a snapshot shows it.
func TestGrantsInFlight(t *testing.T) {
	for name, test := range map[string]struct {
		then func(*desk)
		want memory.Verdict
	}{
		"a snapshot that does not show it": {func(*desk) {}, memory.Wait},
		"a snapshot that shows it":         {func(d *desk) { d.Update(d.facts(box("a", 400, 200), box("b", 400, 10))) }, memory.Wait},
		"it asks again, and holds less":    {func(d *desk) { d.ask("a", 1, 1, 10) }, memory.Grant},
		"the guard sees less":              {func(d *desk) { d.Observe(memory.Sight{At: d.now, Held: map[string]map[string]uint64{"a": {g0: 10}}}) }, memory.Grant},
		"the guard sees nothing of it":     {func(d *desk) { d.Observe(memory.Sight{At: d.now, Held: map[string]map[string]uint64{"b": {g0: 10}}}) }, memory.Wait},
		"its thread is dead":               {func(d *desk) { d.dead[1] = true; d.Update(d.facts(box("a", 400, 10), box("b", 400, 10))) }, memory.Grant},
		"long ago": {func(d *desk) {
			d.now = d.now.Add(10 * time.Second)
			d.Update(d.facts(box("a", 400, 10), box("b", 400, 10)))
		}, memory.Grant},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			d.Update(d.facts(box("a", 400, 10), box("b", 400, 10)))
			d.want(d.ask("a", 1, 190, 10), memory.Grant)
			for range 4 { // a slow device, or a large allocation
				d.now = d.now.Add(300 * time.Millisecond)
				d.Update(d.facts(box("a", 400, 10), box("b", 400, 10)))
				d.want(d.ask("b", 2, 200, 10), memory.Wait)
			}
			d.now = d.now.Add(300 * time.Millisecond)
			test.then(d)
			d.want(d.ask("b", 2, 200, 10), test.want)
		})
	}
}

// Requests of one container, one after the other, count once each.
func TestThreadsOfOneContainer(t *testing.T) {
	d := newDesk(t)
	d.Update(d.facts(box("a", 300, 0), box("b", 400, 0)))
	d.Observe(memory.Sight{At: d.now, Held: map[string]map[string]uint64{"a": {g0: 0}, "b": {g0: 0}}})
	for i := range uint64(3) { // the guard knows what it was granted before
		d.want(d.ask("a", 1+int(i), 100, 100*i), memory.Grant)
	}
	d.want(d.ask("a", 9, 100, 300), memory.Deny)
}

// Who is gone holds nothing, but the card may still have to free it.
func TestWaitsUntilTheCardHasRoom(t *testing.T) {
	d := newDesk(t)
	d.Update(d.facts(box("a", 300, 0)))
	look := func(used uint64) {
		d.now = d.now.Add(10 * time.Millisecond)
		d.Observe(memory.Sight{At: d.now, Used: map[string]uint64{g0: used}, Held: map[string]map[string]uint64{"a": {g0: 0}}})
	}
	look(400)
	a := d.ask("a", 1, 200, 0)
	d.want(a, memory.Wait)
	if !strings.Contains(a.Reason, "given back") {
		t.Error(a.Reason)
	}
	look(312)
	d.want(d.ask("a", 1, 200, 0), memory.Grant)
	d.want(d.ask("a", 2, 1, 200), memory.Wait) // that is not in use yet, and will be
	look(312)
	d.now = d.now.Add(2 * time.Minute)
	d.want(d.Decide(memory.Request{ContainerID: "a", PID: 3, TID: 3, GPU: g0, Bytes: 250, Since: d.now.Add(-time.Minute)}), memory.Grant)
}

func TestReserve(t *testing.T) {
	d := newDesk(t)
	d.Update(d.facts(box("a", 0, 100), box("b", 0, 0)))
	if err := d.Reserve("b", map[string]uint64{g0: 500}); err == nil {
		t.Error("there is no room")
	}
	if err := d.Reserve("b", map[string]uint64{g0: 400}); err != nil {
		t.Error(err)
	}
	d.want(d.ask("a", 1, 50, 100), memory.Wait)
	d.Release("b")
	d.want(d.ask("a", 3, 50, 100), memory.Wait) // it is there, and not seen yet
	d.now = d.now.Add(time.Second)
	d.dead[1], d.dead[3] = true, true
	d.Update(d.facts(box("a", 0, 100), box("b", 0, 10))) // it has given most of it back
	d.want(d.ask("a", 4, 50, 100), memory.Grant)
}

// What is kept for a container that is swapped in is what it held. What it asks for and is granted before the device lists it
// comes on top, also once a reading shows that alone.
func TestSwappedInHoldsWhatItIsGranted(t *testing.T) {
	for _, read := range []bool{false, true} {
		d := newDesk(t)
		d.Update(d.facts(box("a", 130, 40), box("b", 400, 0)))
		if err := d.Reserve("b", map[string]uint64{g0: 350}); err != nil {
			t.Fatal(err)
		}
		d.want(d.ask("b", 1, 50, 0), memory.Grant)
		if read {
			d.now = d.now.Add(10 * time.Millisecond)
			d.Observe(memory.Sight{At: d.now, Held: map[string]map[string]uint64{"a": {g0: 40}, "b": {g0: 50}}, Used: map[string]uint64{g0: 90}})
		}
		d.want(d.ask("a", 2, 80, 40), memory.Wait) // 511 can be had, and 40 + 350 + 50 are gone
	}
}

// One without a limit, or with one above what can be had, is not refused for what is kept for it.
func TestSwappedInIsNotTooLarge(t *testing.T) {
	for _, limit := range []uint64{0, 600} {
		d := newDesk(t)
		f := d.facts(box("a", 0, 20), box("b", limit, 0))
		f.Share = allocator.Adaptive
		d.Update(f)
		if err := d.Reserve("b", map[string]uint64{g0: 450}); err != nil {
			t.Fatal(err)
		}
		d.want(d.ask("b", 1, 80, 350), memory.Wait) // 20 are a's
		d.want(d.ask("b", 2, 500, 350), memory.Deny)
	}
}

// A container that was swapped in gets the rest of its limit at once: what was kept for it is no more than it needs, and
// what it asks for is a part of that.
func TestSwappedInGetsItsLimit(t *testing.T) {
	for _, tt := range []struct {
		name     string
		released bool
		held     uint64 // by the device
	}{
		{"while the swap ends", false, 350}, {"after it", true, 350}, {"after it, and not listed yet", true, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDesk(t)
			d.Update(d.facts(box("a", 400, 100), box("b", 400, 0)))
			if err := d.Reserve("b", map[string]uint64{g0: 400}); err != nil {
				t.Fatal(err)
			}
			if tt.released {
				d.Release("b")
			}
			d.want(d.ask("b", 1, 60, 350), memory.Deny)
			d.want(d.ask("b", 2, 50, tt.held), memory.Grant)
			d.want(d.ask("a", 3, 50, 100), memory.Wait)
		})
	}
}

func TestEvict(t *testing.T) {
	d := newDesk(t)
	b := box("b", 0, 500)
	b.Swappable = true
	f := d.facts(box("a", 0, 0), b)
	f.Share = allocator.Fair
	d.Update(f)
	d.want(d.ask("a", 1, 100, 0), memory.Wait)
	if e := d.Evict(); !strings.Contains(e["b"], "a waits for its memory") {
		t.Errorf("%v", e)
	}
}

// In a circle the last in order is refused. If it keeps what it holds, it is swapped
// out as soon as it does not stand at an allocation any more.
func TestWhoWasRefusedIsSwappedOut(t *testing.T) {
	d := newDesk(t)
	facts := func() facts.Facts {
		a, b := box("a", 450, 210), box("b", 450, 210)
		b.Rank, b.Swappable = 1, true
		return d.facts(a, b)
	}
	d.Update(facts())
	began := d.now
	d.want(d.ask("a", 1, 200, 210), memory.Wait)
	f := facts()
	f.Containers[1].Swappable = false // it stands
	d.Update(f)
	d.want(d.ask("b", 2, 200, 210), memory.Deny)
	if e := d.Evict(); len(e) != 0 {
		t.Errorf("%v", e)
	}
	d.now = d.now.Add(50 * time.Millisecond)
	d.Update(facts())
	if e := d.Evict(); !strings.Contains(e["b"], "to end a circle") || len(e) != 1 {
		t.Errorf("%v", e)
	}
	d.now = d.now.Add(10 * time.Millisecond)
	gone := facts()
	gone.Containers[1].Held, gone.Containers[1].Swapped, gone.GPUs[0].Used = nil, true, 210
	d.Update(gone)
	d.Observe(memory.Sight{At: d.now, Held: map[string]map[string]uint64{"a": {g0: 210}, "b": {g0: 0}}})
	d.want(d.Decide(memory.Request{ContainerID: "a", PID: 1, TID: 1, GPU: g0, Bytes: 200, Held: 210, Since: began}), memory.Grant)
	d.now = d.now.Add(time.Minute)
	d.Update(facts())
	if e := d.Evict(); len(e) != 0 {
		t.Errorf("%v", e)
	}
}

func TestNothingIsRefusedBeforeAnythingIsKnown(t *testing.T) {
	d := newDesk(t)
	d.want(d.ask("a", 1, 1<<60, 0), memory.Grant)
}
