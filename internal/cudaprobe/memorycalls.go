package cudaprobe

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"github.com/laxity/laxity/internal/cudaprobe/cudafile"
)

// Call is an allocation under way.
type Call struct {
	PID, TID int
	Kind     cudafile.Kind
	Bytes    uint64
	// Slot is the budget that it is on; ok of SlotOf is false where its GPU is not
	// known.
	slot uint32
	// Since is when it was made.
	Since time.Time
	// Held: it stands at its entry. Pooled: its pool should have the memory already.
	Held, Pooled bool

	at                     time.Duration // Since, on the kernel's clock
	stack, entry, out, ret uint64
}

// Slot is the budget that the call counts on; ok is false where nobody knows on
// which GPU it is.
func (c Call) Slot() (slot uint32, ok bool) { return c.slot, c.slot != noSlot }

func (v callValue) call(tid uint32, clock clockPair) Call {
	since, _ := clock.wall(v.Time)
	return Call{
		PID: int(v.PID), TID: int(tid), Kind: cudafile.Kind(v.Kind), Bytes: v.Size, slot: v.Slot, Since: since,
		Held: v.State == callHeld, Pooled: v.State == callFree,
		at: time.Duration(v.Time), stack: v.Stack, entry: v.Entry, out: v.Out, ret: v.Return,
	}
}

// Call returns the call that a thread is in; ok is false if it is in none.
func (g *MemoryGuard) Call(tid int) (c Call, ok bool, err error) {
	var v callValue
	err = g.maps.inCalls.Lookup(uint32(tid), &v)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return Call{}, false, nil
	}
	if err != nil {
		return Call{}, false, fmt.Errorf("call of thread %d: %w", tid, err)
	}
	return v.call(uint32(tid), readClocks()), true, nil
}

// Calls returns all allocations that are under way, those that are held included.
func (g *MemoryGuard) Calls() ([]Call, error) {
	var (
		all   []Call
		tid   uint32
		v     callValue
		clock = readClocks()
	)
	entries := g.maps.inCalls.Iterate()
	for entries.Next(&tid, &v) {
		all = append(all, v.call(tid, clock))
	}
	if err := entries.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return all, fmt.Errorf("calls under way: %w", err)
	}
	return all, nil
}

// Grant takes note that a held call will run: it counts as under way. It does not
// continue the process.
func (g *MemoryGuard) Grant(c Call) error {
	var v callValue
	if err := g.maps.inCalls.Lookup(uint32(c.TID), &v); err != nil || v.Time != uint64(c.at) {
		return err // its process is gone
	}
	v.State = callGranted
	return g.maps.inCalls.Put(uint32(c.TID), v)
}

// forgetCalls drops what is known of a process's calls.
func (g *MemoryGuard) forgetCalls(pid int) {
	calls, _ := g.Calls() // what is left ends with its threads' next call
	for _, c := range calls {
		if c.PID == pid {
			_ = g.maps.inCalls.Delete(uint32(c.TID))
		}
	}
}

// forgetOf drops what a map has of a process, by keys that begin with its PID.
func forgetOf(m *ebpf.Map, pid int) {
	var key [2]uint64
	var value []byte
	var old [][2]uint64
	for entries := m.Iterate(); entries.Next(&key, &value); {
		if key[0] == uint64(pid) {
			old = append(old, key)
		}
	}
	for _, key := range old {
		_ = m.Delete(key)
	}
}

// Spent returns what a slot has spent: the bytes of all calls that its budget
// covered, since the begin, but for those that failed.
func (g *MemoryGuard) Spent(slot uint32) (bytes, passed, opened uint64, err error) {
	var v spentValue
	err = g.maps.spent.Lookup(slot, &v)
	return v.Spent, v.Passed, v.Opened, err
}

// SetBudget changes what the programs go by for a slot, at once.
func (g *MemoryGuard) SetBudget(slot uint32, b Budget) error { return g.maps.budgets.Put(slot, b) }

// Pool is memory of a process whose use the ledger does not show, bytes.
type Pool struct {
	Used    uint64 // given out by its pools
	Peak    uint64 // at least so much its pools have got from the driver
	Managed uint64 // of managed memory
	Graphs  uint64 // that its graphs will get when they are launched
	// Contexts is how many it has made that were counted before they were there.
	Contexts uint64
}

// PoolOf returns what is known of a process's pools.
func (g *MemoryGuard) PoolOf(pid int) (Pool, error) {
	var v poolValue
	if err := g.maps.pools.Lookup(uint32(pid), &v); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return Pool{}, err
	}
	// A free that overtakes the note of its allocation may leave less than nothing.
	for _, n := range []*uint64{&v.Used, &v.Managed, &v.Graphs} {
		if int64(*n) < 0 {
			*n = 0
		}
	}
	return v.Pool, nil
}

// families of functions, as the driver names them but for their versions.
var families = map[cudafile.Kind]string{
	cudafile.ContextOnSecond: "cuCtxCreate", cudafile.ContextOnThird: "cuCtxCreate", cudafile.ContextOnFourth: "cuCtxCreate",
	cudafile.ContextOnFifth: "cuCtxCreate", cudafile.ContextElse: "cuCtxCreate", cudafile.Alloc: "cuMemAlloc", cudafile.AllocPitch: "cuMemAllocPitch",
	cudafile.AllocManaged: "cuMemAllocManaged", cudafile.AllocPool: "cuMemAllocAsync", cudafile.MemCreate: "cuMemCreate",
	cudafile.Array: "cuArrayCreate", cudafile.Array3D: "cuArray3DCreate", cudafile.Mipmap: "cuMipmappedArrayCreate",
	cudafile.AddMemNode: "cuGraphAddMemAllocNode", cudafile.AddNodeOnFifth: "cuGraphAddNode", cudafile.AddNodeOnSixth: "cuGraphAddNode",
	cudafile.MemInfo: "cuMemGetInfo", cudafile.TotalMem: "cuDeviceTotalMem",
}

// Function is the function that was called, or one that does the same, without its
// version.
func (c Call) Function() string { return families[c.Kind] }
