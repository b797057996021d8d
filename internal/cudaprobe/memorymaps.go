package cudaprobe

import (
	"errors"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
)

// Slots is how many budgets a MemoryGuard keeps: one for each container and GPU.
const Slots = 1024

// maxOrdinals is how many GPUs of one process are told apart.
const maxOrdinals = 16

// noSlot stands for a GPU that is not known: somebody is asked.
const noSlot = ^uint32(0)

// memoryMaps are what the memory guard's programs share. holds and until outlive
// us, as the gate's do.
type memoryMaps struct {
	maps
	guarded  *ebpf.Map // PID → guardedValue
	inCalls  *ebpf.Map // thread → callValue: its allocation, while it lasts
	spent    *ebpf.Map // slot → spentValue, which only the programs write
	budgets  *ebpf.Map // slot → Budget, which only we write
	pools    *ebpf.Map // PID → poolValue
	live     *ebpf.Map // PID and pointer → size: what pools gave, and managed memory
	graphs   *ebpf.Map // PID and graph, or what is launched of it → bytes that it will get
	nodes    *ebpf.Map // PID and pointer → the latest node of a graph that got it, see memorygraph.go
	graphed  *ebpf.Map // thread → its call about a graph, while it lasts, see memorygraph.go
	infos    *ebpf.Map // thread → its question for memory, while it lasts
	contexts *ebpf.Map // PID and context → ordinal of its GPU
	making   *ebpf.Map // thread → the context that it makes, while that lasts
	current  *ebpf.Map // PID and thread → its contexts, see memorycontext.go
	holds    *ebpf.Map // holdKey → when and which process was stopped
	stopped  *ebpf.Map // PID → time of its latest hold
	released *ebpf.Map // PID → holds up to this time are over
	until    *ebpf.Map // one time: nobody is stopped later than that
}

// guardedValue is what the programs know of a process.
type guardedValue struct {
	Ordinals uint32 // how many GPUs it sees
	Contexts uint32 // bit set of ordinals on which it has a context
	Context  uint64 // bytes that a new context counts for
	Trimmed  uint64 // of the peak of its pools: gone back to the driver
	Slots    [maxOrdinals]uint32
	Follows  uint64 // not 0: what becomes of its graphs is followed
	Seen     uint64 // of poolValue.Contexts, those that are in the ledger
}

// Offsets in guardedValue.
const (
	guardedOrdinals, guardedContexts, guardedContext, guardedTrimmed, guardedSlots = 0, 4, 8, 16, 24

	guardedFollows = guardedSlots + 4*maxOrdinals
	guardedSeen    = guardedFollows + 8
	guardedSize    = guardedSeen + 8
)

// callState says how a call that is under way was let through.
type callState uint32

const (
	callFree    callState = iota // its memory is there already
	callSpent                    // it is counted in the slot's spent
	callHeld                     // it is held
	callGranted                  // somebody granted it
)

// callValue is an allocation under way.
type callValue struct {
	Size   uint64
	Stack  uint64 // the stack pointer at its entry, which points to the return address
	Entry  uint64 // address of the function
	Out    uint64 // its first argument: where the result goes; of a graph's node, the graph
	Time   uint64
	Return uint64 // return address, before any probe replaced it; of a question, its second argument; of a graph's node, where its parameters are
	PID    uint32
	Slot   uint32
	Kind   uint32
	State  callState
}

// Offsets in callValue, and its size.
const (
	cSize, cStack, cEntry, cOut, cTime, cReturn = 0, 8, 16, 24, 32, 40
	cPID, cSlot, cKind, cState                  = 48, 52, 56, 60
	cBytes                                      = 64
)

// spentValue counts what was let through in the kernel, since the begin.
type spentValue struct {
	Spent  uint64 // bytes, less those of calls that failed
	Passed uint64 // calls that were let through with nobody asked
	Opened uint64 // calls beyond the ceiling that passed because the guard is open
}

const spentSpent, spentPassed, spentOpened = 0, 8, 16

// Budget is what the programs go by for one slot.
type Budget struct {
	// Ceiling: a call is let through while Spent (see MemoryGuard.Spent) does not
	// pass it.
	Ceiling uint64
	// Limit, if it is not 0: processes that ask how much memory there is are held,
	// for Show.
	Limit uint64
}

const budgetCeiling, budgetLimit = 0, 8

// poolValue is what the programs know of the memory of one process.
type poolValue struct {
	Pool
	// Stage changes when a graph with memory is made ready or destroyed: nodes that
	// were added before share memory with none that are added later.
	Stage uint64
}

const (
	poolUsed, poolPeak, poolManaged, poolGraphs, poolContexts = 0, 8, 16, 24, 32

	poolStage = 40
	poolSize  = 48
)

// A question for memory, which only the programs read: where the answers free and
// total go, the stack, and the slot.
const infoFree, infoTotal, infoStack, infoSlot, infoSize = 0, 8, 16, 24, 32

// holdKey names one hold of one thread: no two are the same, so that whoever ends
// one cannot end the next one by mistake.
type holdKey struct {
	PID, TID uint32
	Time     uint64
}

func newMemoryMaps(pins string) (m memoryMaps, err error) {
	_ = rlimit.RemoveMemlock() // see newMaps
	const processes, threads, pointers = 4096, 16384, 1 << 17
	for _, want := range []struct {
		to   **ebpf.Map
		spec ebpf.MapSpec
	}{
		{&m.ring, ebpf.MapSpec{Name: "laxity_memory", Type: ebpf.RingBuf, MaxEntries: 256 << 10}},
		{&m.lost, ebpf.MapSpec{Name: "laxity_mlost", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1}},
		{&m.guarded, ebpf.MapSpec{Name: "laxity_guarded", Type: ebpf.Hash, KeySize: 4, ValueSize: guardedSize, MaxEntries: processes}},
		{&m.inCalls, ebpf.MapSpec{Name: "laxity_allocs", Type: ebpf.Hash, KeySize: 4, ValueSize: cBytes, MaxEntries: threads, Flags: noPrealloc}},
		{&m.spent, ebpf.MapSpec{Name: "laxity_spent", Type: ebpf.Array, KeySize: 4, ValueSize: 24, MaxEntries: Slots}},
		{&m.budgets, ebpf.MapSpec{Name: "laxity_budget", Type: ebpf.Array, KeySize: 4, ValueSize: 16, MaxEntries: Slots}},
		{&m.pools, ebpf.MapSpec{Name: "laxity_pools", Type: ebpf.Hash, KeySize: 4, ValueSize: poolSize, MaxEntries: processes}},
		{&m.live, ebpf.MapSpec{Name: "laxity_live", Type: ebpf.Hash, KeySize: 16, ValueSize: 16, MaxEntries: pointers, Flags: noPrealloc}},
		{&m.graphs, ebpf.MapSpec{Name: "laxity_graphs", Type: ebpf.Hash, KeySize: 16, ValueSize: 8, MaxEntries: pointers, Flags: noPrealloc}},
		{&m.nodes, ebpf.MapSpec{Name: "laxity_nodes", Type: ebpf.LRUHash, KeySize: 16, ValueSize: nodeSize, MaxEntries: 8192}},
		{&m.graphed, ebpf.MapSpec{Name: "laxity_graphed", Type: ebpf.LRUHash, KeySize: 4, ValueSize: graphCallSize, MaxEntries: 4096}},
		{&m.infos, ebpf.MapSpec{Name: "laxity_infos", Type: ebpf.LRUHash, KeySize: 4, ValueSize: infoSize, MaxEntries: 4096}},
		{&m.contexts, ebpf.MapSpec{Name: "laxity_ctxs", Type: ebpf.LRUHash, KeySize: 16, ValueSize: 8, MaxEntries: 8192}},
		{&m.making, ebpf.MapSpec{Name: "laxity_newctx", Type: ebpf.LRUHash, KeySize: 4, ValueSize: makingSize, MaxEntries: 4096}},
		{&m.current, ebpf.MapSpec{Name: "laxity_current", Type: ebpf.LRUHash, KeySize: 8, ValueSize: 8, MaxEntries: threads}},
		{&m.holds, ebpf.MapSpec{Name: "laxity_holds", Type: ebpf.Hash, KeySize: 16, ValueSize: heldSize, MaxEntries: threads, Flags: noPrealloc}},
		{&m.stopped, ebpf.MapSpec{Name: "laxity_stopped", Type: ebpf.Hash, KeySize: 4, ValueSize: 8, MaxEntries: processes}},
		{&m.released, ebpf.MapSpec{Name: "laxity_release", Type: ebpf.Hash, KeySize: 4, ValueSize: 8, MaxEntries: processes}},
		{&m.until, ebpf.MapSpec{Name: "laxity_muntil", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1}},
	} {
		made, err := ebpf.NewMap(&want.spec)
		if err != nil {
			return m, err
		}
		*want.to = made
	}
	return m, pin(pins, m.holds, m.until)
}

// noPrealloc is BPF_F_NO_PREALLOC: memory is taken as it is needed.
const noPrealloc = 1

// Close gives the maps back. Their names stay, for whoever lets go.
func (m memoryMaps) Close() error {
	errs := []error{m.maps.Close()}
	for _, one := range []*ebpf.Map{
		m.guarded, m.inCalls, m.spent, m.budgets, m.pools, m.live, m.graphs, m.nodes, m.graphed, m.infos, m.contexts, m.making, m.current,
		m.holds, m.stopped, m.released, m.until,
	} {
		if one != nil {
			errs = append(errs, one.Close())
		}
	}
	return errors.Join(errs...)
}
