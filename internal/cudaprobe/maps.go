package cudaprobe

import (
	"errors"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/rlimit"

	"github.com/laxity/laxity/internal/cudaprobe/cudafile"
)

// maps are what the programs share with each other and with us.
type maps struct {
	ring  *ebpf.Map // events
	lost  *ebpf.Map // one counter: events that had no room
	told  *ebpf.Map // process and kind → when it was told
	known *ebpf.Map // PID of a process whose end is to be told → since when
	busy  *ebpf.Map // PID of a tracked process → busyState
	calls *ebpf.Map // thread → its synchronising call
	// returned is by the PID of a tracked process when a call returned after which
	// nothing was at work, as far as is known. It is apart from busy, which user space
	// writes as a whole: a return at that moment must not be lost.
	returned *ebpf.Map
}

// busyState is a value of the map busy: how many launches, how many of them are
// known to be done; when the last fastLaunches of them began, and whether that was
// fast (then nothing is told to be done any more).
type busyState struct{ Launched, Done, Mark, Fast uint64 }

const busySize = 32

// callKey is a key of the map calls, callBegin a value.
type (
	callKey   struct{ TID, PID uint32 }
	callBegin struct{ Launched, Time uint64 }
)

func newMaps() (maps, error) {
	// Before Linux 5.11 maps count as locked memory. Where that limit may not be
	// raised it may still be high enough.
	_ = rlimit.RemoveMemlock()
	var m maps
	for _, want := range []struct {
		to   **ebpf.Map
		spec ebpf.MapSpec
	}{
		// Room for two events each, with control groups, of 700 processes.
		{&m.ring, ebpf.MapSpec{Name: "laxity_events", Type: ebpf.RingBuf, MaxEntries: 1 << 20}},
		{&m.lost, ebpf.MapSpec{Name: "laxity_lost", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1}},
		{&m.told, ebpf.MapSpec{Name: "laxity_told", Type: ebpf.LRUHash, KeySize: 24, ValueSize: 8, MaxEntries: 8192}},
		{&m.known, ebpf.MapSpec{Name: "laxity_known", Type: ebpf.LRUHash, KeySize: 4, ValueSize: 8, MaxEntries: 8192}},
		{&m.busy, ebpf.MapSpec{Name: "laxity_busy", Type: ebpf.Hash, KeySize: 4, ValueSize: busySize, MaxEntries: 4096}},
		// Not one that drops what is old: a call may wait for an hour.
		{&m.calls, ebpf.MapSpec{Name: "laxity_calls", Type: ebpf.Hash, KeySize: 8, ValueSize: 16, MaxEntries: 8192}},
		{&m.returned, ebpf.MapSpec{Name: "laxity_return", Type: ebpf.Hash, KeySize: 4, ValueSize: 8, MaxEntries: 4096}},
	} {
		made, err := ebpf.NewMap(&want.spec)
		if err != nil {
			return m, err
		}
		*want.to = made
	}
	return m, nil
}

// Close gives them back, those that there are.
func (m maps) Close() error {
	var errs []error
	for _, one := range []*ebpf.Map{m.ring, m.lost, m.told, m.known, m.busy, m.calls, m.returned} {
		if one != nil {
			errs = append(errs, one.Close())
		}
	}
	return errors.Join(errs...)
}

// alwaysPrograms are those that every process meets. They are on functions that
// a process calls a few times in its life.
func alwaysPrograms(m maps, t *taskOffsets) map[cudafile.Kind]asm.Instructions {
	return map[cudafile.Kind]asm.Instructions{
		cudafile.Init:        first(m, t, InitCalled),
		cudafile.Context:     first(m, t, ContextCalled),
		cudafile.ContextGone: leaving(m, t, ContextCalled),
	}
}
