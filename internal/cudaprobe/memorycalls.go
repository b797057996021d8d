package cudaprobe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/laxity/laxity/internal/cudabpf"
	"github.com/laxity/laxity/internal/cudaprobe/cudafile"
)

// Call is an allocation, or a question for memory, under way in one thread.
type Call struct {
	PID, TID int
	Kind     cudafile.Kind
	Bytes    uint64
	// Since is when it was made.
	Since time.Time
	// Held: it waits at its entry. Pooled: its pool should have the memory already.
	Held, Pooled bool
	// At is Since by the kernel's clock (CLOCK_MONOTONIC). With PID and TID it identifies the call,
	// and its hold on the record.
	At time.Duration

	slot                    uint32
	epoch                   uint64
	stack, entry, out, more uint64
}

// Slot is the budget that the call counts on; ok is false if its GPU is unknown.
func (c Call) Slot() (slot uint32, ok bool) { return c.slot, c.slot != noSlot }

// OfGraph reports whether the call adds a node to a graph, which gets its memory when the graph is
// launched.
func (c Call) OfGraph() bool {
	return c.Kind >= cudafile.AddMemNode && c.Kind <= cudafile.AddNodeOnSixth
}

// Question reports whether the call is no allocation, but asks how much memory there is: Show
// answers it.
func (c Call) Question() bool { return c.Kind == cudafile.MemInfo || c.Kind == cudafile.TotalMem }

// Same reports whether two are the same call.
func (c Call) Same(o Call) bool { return c.PID == o.PID && c.TID == o.TID && c.At == o.At }

func callOf(tid uint32, v cudabpf.MemoryCall, clock clockPair) Call {
	since, _ := clock.wall(v.Time)
	return Call{
		PID: int(v.Pid), TID: int(tid), Kind: cudafile.Kind(v.Kind), Bytes: v.Size, Since: since,
		Held:   v.State == cudabpf.MemoryCallStateCALL_HELD,
		Pooled: v.State == cudabpf.MemoryCallStateCALL_FREE,
		At:     time.Duration(v.Time), slot: v.Slot, epoch: v.Epoch,
		stack: v.Sp, entry: v.Entry, out: v.Out, more: v.More,
	}
}

// Call returns the call that a thread is in; ok is false if it is in none.
func (g *MemoryGuard) Call(tid int) (c Call, ok bool, err error) {
	var v cudabpf.MemoryCall
	err = g.objects.Calls.Lookup(uint32(tid), &v)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return Call{}, false, nil
	}
	if err != nil {
		return Call{}, false, fmt.Errorf("call of thread %d: %w", tid, err)
	}
	return callOf(uint32(tid), v, readClocks()), true, nil
}

// Calls returns all calls that are under way, those that are held included.
func (g *MemoryGuard) Calls() ([]Call, error) {
	var (
		all    []Call
		tid    uint32
		v      cudabpf.MemoryCall
		clock  = readClocks()
		epochs = map[uint32]uint64{}
	)
	entries := g.objects.Calls.Iterate()
	for entries.Next(&tid, &v) {
		epoch, ok := epochs[v.Pid]
		if !ok {
			totals, _ := g.totals(int(v.Pid)) // 0 for a process that is not guarded
			epoch = totals.Epoch
			epochs[v.Pid] = epoch
		}
		if v.Epoch == epoch { // else of a program that another one has replaced
			all = append(all, callOf(tid, v, clock))
		}
	}
	if err := entries.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return all, fmt.Errorf("calls under way: %w", err)
	}
	return all, nil
}

// Grant records that a held call will run: it counts as under way. It does not continue the
// process.
func (g *MemoryGuard) Grant(c Call) error {
	var v cudabpf.MemoryCall
	if err := g.objects.Calls.Lookup(uint32(c.TID), &v); err != nil || v.Time != uint64(c.At) || v.Pid != uint32(c.PID) {
		return nil //nolint:nilerr // its process is gone
	}
	v.State = cudabpf.MemoryCallStateCALL_GRANTED
	return g.objects.Calls.Put(uint32(c.TID), v)
}

// end removes a call that does not run, or has run.
func (g *MemoryGuard) end(c Call) error {
	var v cudabpf.MemoryCall
	if err := g.objects.Calls.Lookup(uint32(c.TID), &v); err != nil || v.Time != uint64(c.At) || v.Pid != uint32(c.PID) {
		return nil //nolint:nilerr // it is over
	}
	if err := g.objects.Calls.Delete(uint32(c.TID)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	return nil
}

// forgetCalls drops what is known of a process's calls.
func (g *MemoryGuard) forgetCalls(pid int) {
	var tid uint32
	var v cudabpf.MemoryCall
	var old []uint32
	for entries := g.objects.Calls.Iterate(); entries.Next(&tid, &v); {
		if v.Pid == uint32(pid) {
			old = append(old, tid)
		}
	}
	for _, tid := range old { // others end with their thread's next call
		_ = g.objects.Calls.Delete(tid)
	}
}

// Spent is the sum of a slot's calls since the start.
type Spent struct {
	Bytes  uint64 // of calls that its budget covered; it never gets less
	Failed uint64 // of those of them that failed
	Passed uint64 // calls that continued without being held
	Opened uint64 // calls beyond the ceiling that passed because the guard was open
}

// Got is the bytes of calls that did not fail. Calls under way count.
func (s Spent) Got() uint64 { return s.Bytes - s.Failed }

// Spent returns what a slot has spent.
func (g *MemoryGuard) Spent(slot uint32) (Spent, error) {
	var v cudabpf.MemorySpent
	err := g.objects.SpentOn.Lookup(slot, &v)
	return Spent{v.Bytes, v.Failed, v.Passed, v.Opened}, err
}

// Budget is the bound that the programs apply to one slot.
type Budget struct {
	// Ceiling: a call passes while Spent.Bytes stays at or below it.
	Ceiling uint64
	// Limit, if not 0: processes that ask how much memory there is are held, for Show.
	Limit uint64
}

// SetBudget changes the budget of a slot, at once.
func (g *MemoryGuard) SetBudget(slot uint32, b Budget) error {
	return g.objects.Budgets.Put(slot, cudabpf.MemoryBudget{Ceiling: b.Ceiling, Limit: b.Limit})
}

// Totals is memory of a process that the device does not show as its use, bytes.
type Totals struct {
	Used    uint64 // handed out by its pools
	Peak    uint64 // at least what its pools got from the driver
	Managed uint64 // of managed memory
	Graphs  uint64 // that its graphs will get when launched
	// Contexts is how many contexts it made that were counted before they existed, and Guarded.Made.
	Contexts uint64
	// On is the set of GPUs on which it made a context, as bits, as the process counts GPUs; 0 where it sees one alone.
	On uint32
	// Epoch differs for each program that runs in a process.
	Epoch uint64
}

func (g *MemoryGuard) totals(pid int) (v cudabpf.MemoryTotals, err error) {
	if err = g.objects.TotalsOf.Lookup(uint32(pid), &v); errors.Is(err, ebpf.ErrKeyNotExist) {
		err = nil
	}
	return v, err
}

// TotalsOf returns the memory of a process; zero if it is not guarded.
func (g *MemoryGuard) TotalsOf(pid int) (Totals, error) {
	v, err := g.totals(pid)
	// A free that overtakes the record of its allocation may make the sum negative.
	positive := func(n uint64) uint64 {
		if int64(n) < 0 {
			return 0
		}
		return n
	}
	return Totals{
		Used: positive(v.Used), Peak: v.Peak, Managed: positive(v.Managed), Graphs: positive(v.Graphs), Contexts: v.Contexts,
		On: uint32(v.On), Epoch: v.Epoch,
	}, err
}

// MemoryEvent is what the programs report.
type MemoryEvent struct {
	PID, TID int
	// Slipped: a held call ran to its end because another program continued its process. Otherwise
	// its thread was stopped.
	Slipped bool
}

// Next waits for the next event. After Close it returns ErrClosed. An event may be lost; the record
// of holds is complete.
func (g *MemoryGuard) Next() (MemoryEvent, error) {
	err := g.reader.ReadInto(&g.buffer)
	switch {
	case errors.Is(err, ringbuf.ErrClosed), errors.Is(err, os.ErrClosed):
		return MemoryEvent{}, ErrClosed
	case err != nil:
		return MemoryEvent{}, fmt.Errorf("read events: %w", err)
	}
	return decodeMemory(g.buffer.RawSample)
}

// decodeMemory reads what a program has written.
func decodeMemory(raw []byte) (MemoryEvent, error) {
	var e cudabpf.MemoryEvent
	if _, err := binary.Decode(raw, binary.NativeEndian, &e); err != nil {
		return MemoryEvent{}, fmt.Errorf("event of %d bytes: %w", len(raw), err)
	}
	return MemoryEvent{PID: int(e.Pid), TID: int(e.Tid), Slipped: e.Kind == cudabpf.MemoryEventKindEVENT_SLIPPED}, nil
}

// FollowGraphs follows the memory of a process's graphs from now on. Until then nodes that it adds
// are held. Its probes are also on launches, so a process gets them with its first such node. It is
// idempotent. Like Attach it may never end.
func (g *MemoryGuard) FollowGraphs(pid int) error {
	p := g.unfollowed(pid)
	if p == nil {
		return nil
	}
	return g.attachTo(pid, p, func(drivers []driver) error {
		if g.unfollowed(pid) != p { // another call was first
			return nil
		}
		calls := []cudafile.Kind{cudafile.GraphMade, cudafile.GraphRun}
		for _, d := range drivers {
			all, err := g.attach(d, pid, p.value.Set, []put{
				{calls, g.objects.GraphReturn, true}, // before the entries, so that each entry has its return
				{calls, g.objects.GraphEntry, false},
				{[]cudafile.Kind{cudafile.GraphGone}, g.objects.GraphGone, false},
			})
			if err != nil {
				g.detach(all)
				return explainAttach(fmt.Sprintf("follow the graphs of process %d", pid), err)
			}
			g.keep(pid, p, d.file.ID, all)
		}
		return g.change(pid, func(v *cudabpf.MemoryProcess) { v.Follows = 1 })
	})
}

// unfollowed returns a guarded process whose graphs are not followed; nil if they are, or it is not guarded.
func (g *MemoryGuard) unfollowed(pid int) *guardedProcess {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.processes[pid]; p != nil && p.value.Follows == 0 {
		return p
	}
	return nil
}

// families are the functions by the driver's names, without versions.
var families = map[cudafile.Kind]string{
	cudafile.ContextOnSecond: "cuCtxCreate", cudafile.ContextOnThird: "cuCtxCreate", cudafile.ContextOnFourth: "cuCtxCreate",
	cudafile.ContextOnFifth: "cuCtxCreate", cudafile.ContextElse: "cuCtxCreate", cudafile.Alloc: "cuMemAlloc", cudafile.AllocPitch: "cuMemAllocPitch",
	cudafile.AllocManaged: "cuMemAllocManaged", cudafile.AllocPool: "cuMemAllocAsync", cudafile.MemCreate: "cuMemCreate",
	cudafile.Array: "cuArrayCreate", cudafile.Array3D: "cuArray3DCreate", cudafile.Mipmap: "cuMipmappedArrayCreate",
	cudafile.AddMemNode: "cuGraphAddMemAllocNode", cudafile.AddNodeOnFifth: "cuGraphAddNode", cudafile.AddNodeOnSixth: "cuGraphAddNode",
	cudafile.MemInfo: "cuMemGetInfo", cudafile.TotalMem: "cuDeviceTotalMem",
}

// Function is the function that was called, or one that does the same, without its version.
func (c Call) Function() string { return families[c.Kind] }
