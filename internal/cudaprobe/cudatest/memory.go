package cudatest

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// ContextSize is what a context takes of the stand-in's memory, bytes.
const ContextSize = 64 << 20

// OutOfMemory is CUDA_ERROR_OUT_OF_MEMORY.
const OutOfMemory = 2

// Allocated is the result of allocations.
type Allocated struct {
	Called
	Result int // of the call that ended them; 0: none failed
	Count  int // how many succeeded
}

// Alloc calls an allocating function this many times, or until it fails.
func (p *Program) Alloc(name string, bytes uint64, times int) Allocated {
	p.t.Helper()
	return p.BeginAlloc(name, bytes, times, 1)()
}

// BeginAlloc is Alloc in several threads at once, and returns at once. The returned function waits
// for their end.
func (p *Program) BeginAlloc(name string, bytes uint64, times, threads int) func() Allocated {
	p.t.Helper()
	if threads > 1 {
		return p.beginThreads(name, bytes, times, threads)
	}
	p.say(fmt.Sprintf("alloc %s %d %d", name, bytes, times))
	return func() Allocated { p.t.Helper(); return p.allocated() }
}

// BeginAllocInThread is BeginAlloc in one new thread, which has no current context.
func (p *Program) BeginAllocInThread(name string, bytes uint64, times int) func() Allocated {
	p.t.Helper()
	return p.beginThreads(name, bytes, times, 1)
}

func (p *Program) beginThreads(name string, bytes uint64, times, threads int) func() Allocated {
	p.t.Helper()
	p.say(fmt.Sprintf("threads %s %d %d %d", name, bytes, times, threads))
	return func() Allocated { p.t.Helper(); return p.allocated() }
}

// AllocLoop allocates and frees this many times.
func (p *Program) AllocLoop(name string, bytes uint64, times int) Allocated {
	p.t.Helper()
	p.say(fmt.Sprintf("loop %s %d %d", name, bytes, times))
	return p.allocated()
}

// Context makes or retains a context on a device, by a function of that name.
func (p *Program) Context(name string, device int) {
	p.t.Helper()
	p.say(fmt.Sprintf("context %s %d", name, device))
	p.allocated()
}

// Current makes the latest context on a device current, pushes it, or pops one, by a
// function of that name.
func (p *Program) Current(name string, device int) {
	p.t.Helper()
	p.say(fmt.Sprintf("current %s %d", name, device))
	p.allocated()
}

// Graph makes the graph ready that nodes were added to (by Alloc, with a function that
// adds nodes; with no bytes it adds one that gets no memory), launches what is ready,
// destroys the graph, or adds a node that frees the latest allocation, by a function of
// that name.
func (p *Program) Graph(name string) {
	p.t.Helper()
	p.say("graph " + name)
	if a := p.allocated(); a.Result != 0 {
		p.t.Fatalf("%s: error %d", name, a.Result)
	}
}

// Free frees this many of the latest allocations.
func (p *Program) Free(name string, times int) Allocated {
	p.t.Helper()
	p.say(fmt.Sprintf("free %s %d", name, times))
	return p.allocated()
}

func (p *Program) allocated() Allocated {
	p.t.Helper()
	var name string
	var before, after int64
	var a Allocated
	p.answer(&name, &before, &after, &a.Result, &a.Count)
	a.Called = Called{time.Unix(0, before), time.Unix(0, after)}
	return a
}

// Memory asks the library how much memory is free, how much there is, and how
// much the device has, bytes.
func (p *Program) Memory() (free, total, device uint64) {
	p.t.Helper()
	p.say("info")
	var name string
	var before, after int64
	p.answer(&name, &before, &after, &free, &total, &device)
	return free, total, device
}

// Usage tells how many bytes of the stand-in's memory each living process holds.
func (b Built) Usage() (map[int]uint64, error) {
	files, err := filepath.Glob(filepath.Join(b.Dir, "[0-9]*"))
	if err != nil {
		return nil, err
	}
	held := map[int]uint64{}
	for _, file := range files {
		pid, err := strconv.Atoi(filepath.Base(file))
		if err != nil || syscall.Kill(pid, 0) != nil {
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if len(data) >= 8 {
			if n := binary.NativeEndian.Uint64(data); n > 0 {
				held[pid] = n
			}
		}
	}
	return held, nil
}
