package cudafile

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"syscall"
)

// ErrNotDriver means that a file is not the CUDA driver library, or cannot be
// read as such.
var ErrNotDriver = errors.New("not a CUDA driver library")

// maxOfKind bounds the functions of one kind: each gets probes, which take the kernel some ms on
// Linux before 6.10. The kind with the most names, Launch, has about a dozen in drivers up to 580.
const maxOfKind = 64

// Kind groups the functions that matter for one purpose.
type Kind int

// The kinds of function.
const (
	Init        Kind = iota // cuInit
	Context                 // a context is created or retained
	ContextGone             // a context is destroyed or released
	Launch                  // a kernel or a graph is launched
	Sync                    // returns once the GPU work before it is done
	AsyncCopy               // copies to the host; waits for the GPU only if the target is not pinned

	Alloc        // device memory; the size is the second argument
	AllocPitch   // rows of device memory: width and height are the third and fourth argument
	AllocManaged // memory that moves between host and GPU
	AllocPool    // from a pool, in the order of a stream; the pool may hold the memory already
	MemCreate    // physical memory, mapped later; the third argument says where it is
	Array        // an array, by a descriptor of two dimensions
	Array3D      // an array, by a descriptor of three dimensions
	Mipmap       // an array and smaller copies of it
	// A node of a graph that gets memory when the graph is launched: its parameters are
	// the fifth argument. Then any node, as the fifth or the sixth argument says.
	AddMemNode
	AddNodeOnFifth
	AddNodeOnSixth
	Free     // device memory is freed, or given back to its pool
	MemInfo  // how much memory of the GPU is free, and how much there is
	TotalMem // how much memory a GPU has

	// Those of Context again, by the argument that says on which GPU: the second,
	// third, fourth or fifth, or one that is not known.
	ContextOnSecond
	ContextOnThird
	ContextOnFourth
	ContextOnFifth
	ContextElse
	GraphMade // a graph is made ready to be launched: from the second argument, what is launched to where the first points
	GraphRun  // it is launched, or its memory is got for that
	GraphGone // a graph is destroyed

	SetContext // a context becomes the thread's current one, replacing the last
	PushContext
	PopContext
)

// Contexts are the functions of Context, each once.
var Contexts = []Kind{ContextOnSecond, ContextOnThird, ContextOnFourth, ContextOnFifth, ContextElse}

// Allocations are the kinds that allocate GPU memory, but for contexts.
var Allocations = []Kind{Alloc, AllocPitch, AllocManaged, AllocPool, MemCreate, Array, Array3D, Mipmap, AddMemNode, AddNodeOnFifth, AddNodeOnSixth}

// Graphs are the kinds that show what happens to a graph whose nodes have memory.
var Graphs = []Kind{GraphMade, GraphRun, GraphGone}

// suffix: versions (_v2) come with new CUDA releases; _ptsz and _ptds are the same functions for
// programs with one default stream per thread.
const suffix = `(_v\d+)?(_ptsz|_ptds)?$`

var names = map[Kind]*regexp.Regexp{
	Init:        regexp.MustCompile(`^cuInit$`),
	Context:     regexp.MustCompile(`^(cuCtxCreate|cuDevicePrimaryCtxRetain)` + suffix),
	ContextGone: regexp.MustCompile(`^(cuCtxDestroy|cuDevicePrimaryCtxRelease|cuDevicePrimaryCtxReset)` + suffix),
	Launch:      regexp.MustCompile(`^(cuLaunch|cuLaunchGrid|cuLaunchGridAsync|cuLaunchKernel|cuLaunchKernelEx|cuLaunchCooperativeKernel|cuGraphLaunch)` + suffix),
	Sync:        regexp.MustCompile(`^(cuCtxSynchronize|cuStreamSynchronize|cuEventSynchronize|cuMemcpyDtoH)` + suffix),
	AsyncCopy:   regexp.MustCompile(`^cuMemcpyDtoHAsync` + suffix),

	Alloc:        regexp.MustCompile(`^cuMemAlloc` + suffix),
	AllocPitch:   regexp.MustCompile(`^cuMemAllocPitch` + suffix),
	AllocManaged: regexp.MustCompile(`^cuMemAllocManaged` + suffix),
	AllocPool:    regexp.MustCompile(`^(cuMemAllocAsync|cuMemAllocFromPoolAsync)` + suffix),
	MemCreate:    regexp.MustCompile(`^cuMemCreate` + suffix),
	Array:        regexp.MustCompile(`^cuArrayCreate` + suffix),
	Array3D:      regexp.MustCompile(`^cuArray3DCreate` + suffix),
	Mipmap:       regexp.MustCompile(`^cuMipmappedArrayCreate` + suffix),
	// Of cuGraphAddNode the second version came with CUDA 12.3, and has one argument more.
	AddMemNode:     regexp.MustCompile(`^cuGraphAddMemAllocNode` + suffix),
	AddNodeOnFifth: regexp.MustCompile(`^cuGraphAddNode(_ptsz|_ptds)?$`),
	AddNodeOnSixth: regexp.MustCompile(`^cuGraphAddNode_v\d+(_ptsz|_ptds)?$`),
	GraphMade:      regexp.MustCompile(`^(cuGraphInstantiate|cuGraphInstantiateWithFlags|cuGraphInstantiateWithParams)` + suffix),
	GraphRun:       regexp.MustCompile(`^(cuGraphLaunch|cuGraphUpload)` + suffix),
	GraphGone:      regexp.MustCompile(`^cuGraphDestroy` + suffix),
	Free:           regexp.MustCompile(`^(cuMemFree|cuMemFreeAsync)` + suffix),
	// Without a version these are of CUDA 3.1 and before, and write 32 bits.
	MemInfo:  regexp.MustCompile(`^cuMemGetInfo_v\d+$`),
	TotalMem: regexp.MustCompile(`^cuDeviceTotalMem_v\d+$`),

	ContextOnSecond: regexp.MustCompile(`^cuDevicePrimaryCtxRetain` + suffix),
	ContextOnThird:  regexp.MustCompile(`^cuCtxCreate(_v2)?(_ptsz|_ptds)?$`),
	ContextOnFourth: regexp.MustCompile(`^cuCtxCreate_v4(_ptsz|_ptds)?$`),
	ContextOnFifth:  regexp.MustCompile(`^cuCtxCreate_v3(_ptsz|_ptds)?$`),
	ContextElse:     regexp.MustCompile(`^cuCtxCreate_v(1|[5-9]|\d\d+)(_ptsz|_ptds)?$`),
	SetContext:      regexp.MustCompile(`^cuCtxSetCurrent` + suffix),
	PushContext:     regexp.MustCompile(`^cuCtxPushCurrent` + suffix),
	PopContext:      regexp.MustCompile(`^cuCtxPopCurrent` + suffix),
}

// KindsOf returns what a function of the driver does, by its name, in the order of the kinds.
func KindsOf(name string) (kinds []Kind) {
	for kind, pattern := range names {
		if pattern.MatchString(name) {
			kinds = append(kinds, kind)
		}
	}
	slices.Sort(kinds)
	return kinds
}

// Functions are the places for probes of functions in a file, as sorted offsets without repeats:
// their entries, or a little behind (see probePlace).
type Functions map[Kind][]uint64

// Of returns the offsets of all functions of some kinds.
func (f Functions) Of(kinds ...Kind) (offsets []uint64) {
	for _, kind := range kinds {
		offsets = append(offsets, f[kind]...)
	}
	return offsets
}

// Functions returns which of the functions the file has. The error wraps ErrNotDriver if it has no
// cuInit, has more functions of one kind than a driver can have, or is no shared library; not if the file
// cannot be read now. It reads the file: on a network file system whose server is down that may never end.
func (f *File) Functions() (Functions, error) {
	functions, err := readFunctions(f.file, f.ID.Size)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Path, err)
	}
	return functions, nil
}

func readFunctions(r io.ReaderAt, size int64) (Functions, error) {
	if size > maxFileSize {
		return nil, fmt.Errorf("%w: %d bytes are too many", ErrNotDriver, size)
	}
	file, err := readLibrary(r)
	if err != nil {
		return nil, notDriver(err)
	}
	functions := Functions{}
	err = file.eachSymbol(func(name string, s elf.Sym64) error {
		kinds := KindsOf(name)
		if len(kinds) == 0 || elf.ST_TYPE(s.Info) != elf.STT_FUNC || elf.SectionIndex(s.Shndx) == elf.SHN_UNDEF {
			return nil
		}
		offset, ok := file.fileOffset(s.Value)
		if !ok {
			return nil
		}
		place := probePlace(r, file.machine, offset)
		for _, kind := range kinds {
			if len(functions[kind]) == maxOfKind {
				return fmt.Errorf("it has more than %d functions like %s", maxOfKind, name)
			}
			functions[kind] = append(functions[kind], place)
		}
		return nil
	})
	if err != nil {
		return nil, notDriver(err)
	}
	for kind, offsets := range functions {
		slices.Sort(offsets)
		functions[kind] = slices.Compact(offsets) // two names may be one function
	}
	if len(functions[Init]) == 0 {
		return nil, fmt.Errorf("%w: it has no function cuInit", ErrNotDriver)
	}
	return functions, nil
}

// notDriver wraps what is wrong with a file, but not the system's error: a network file system may
// answer again.
func notDriver(err error) error {
	if _, unread := errors.AsType[syscall.Errno](err); unread {
		return err
	}
	return fmt.Errorf("%w: %w", ErrNotDriver, err)
}
