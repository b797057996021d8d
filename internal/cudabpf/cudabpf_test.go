package cudabpf_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/laxity/laxity/internal/cudabpf"
	"github.com/laxity/laxity/internal/cudaprobe/cudafile"
	"github.com/laxity/laxity/internal/needtest"
)

// The programs know a function by the same number as package cudafile.
func TestKindsAreThoseOfCudafile(t *testing.T) {
	for kind, want := range map[cudabpf.MemoryKind]cudafile.Kind{
		cudabpf.MemoryKindALLOC: cudafile.Alloc, cudabpf.MemoryKindALLOC_PITCH: cudafile.AllocPitch,
		cudabpf.MemoryKindALLOC_MANAGED: cudafile.AllocManaged, cudabpf.MemoryKindALLOC_POOL: cudafile.AllocPool,
		cudabpf.MemoryKindMEM_CREATE: cudafile.MemCreate, cudabpf.MemoryKindARRAY: cudafile.Array,
		cudabpf.MemoryKindARRAY_3D: cudafile.Array3D, cudabpf.MemoryKindMIPMAP: cudafile.Mipmap,
		cudabpf.MemoryKindADD_MEM_NODE: cudafile.AddMemNode, cudabpf.MemoryKindADD_NODE_ON_FIFTH: cudafile.AddNodeOnFifth,
		cudabpf.MemoryKindADD_NODE_ON_SIXTH: cudafile.AddNodeOnSixth, cudabpf.MemoryKindFREE: cudafile.Free,
		cudabpf.MemoryKindMEM_INFO: cudafile.MemInfo, cudabpf.MemoryKindTOTAL_MEM: cudafile.TotalMem,
		cudabpf.MemoryKindCONTEXT_ON_SECOND: cudafile.ContextOnSecond, cudabpf.MemoryKindCONTEXT_ON_THIRD: cudafile.ContextOnThird,
		cudabpf.MemoryKindCONTEXT_ON_FOURTH: cudafile.ContextOnFourth, cudabpf.MemoryKindCONTEXT_ON_FIFTH: cudafile.ContextOnFifth,
		cudabpf.MemoryKindCONTEXT_ELSE: cudafile.ContextElse, cudabpf.MemoryKindGRAPH_MADE: cudafile.GraphMade,
		cudabpf.MemoryKindGRAPH_RUN: cudafile.GraphRun, cudabpf.MemoryKindGRAPH_GONE: cudafile.GraphGone,
		cudabpf.MemoryKindSET_CONTEXT: cudafile.SetContext, cudabpf.MemoryKindPUSH_CONTEXT: cudafile.PushContext,
		cudabpf.MemoryKindPOP_CONTEXT: cudafile.PopContext,
	} {
		if cudafile.Kind(kind) != want {
			t.Errorf("kind %d is %d in package cudafile", kind, want)
		}
	}
}

// madeWith is the compiler that made the committed objects: Debian 12's. Another one
// makes other bytes.
const madeWith = "clang version 14.0.6"

// The committed objects and types are made from the C files beside them.
func TestGeneratedIsCommitted(t *testing.T) {
	version, err := exec.CommandContext(t.Context(), "clang", "--version").Output()
	if err != nil || !strings.Contains(string(version), madeWith) {
		needtest.Clang.Skipf(t, "needs %s to compare (apt-get install clang llvm libbpf-dev): %v", madeWith, err)
	}
	if _, err := os.Stat("/usr/include/bpf/bpf_helpers.h"); err != nil {
		needtest.Clang.Skip(t, "needs libbpf's headers (apt-get install libbpf-dev)")
	}
	dir := t.TempDir()
	bpf2go := filepath.Join(dir, "bpf2go")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bpf2go, "github.com/cilium/ebpf/cmd/bpf2go")
	build.Dir = "../../tools"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	copied := filepath.Join(dir, "internal", "cudabpf")
	if err := os.CopyFS(copied, os.DirFS(".")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, ".tools"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(bpf2go, filepath.Join(dir, ".tools", "bpf2go")); err != nil {
		t.Fatal(err)
	}
	generate := exec.CommandContext(t.Context(), "go", "generate", "cudabpf.go")
	generate.Dir = copied
	if out, err := generate.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	sources, err := filepath.Glob("*.bpf.c")
	if err != nil || len(sources) == 0 {
		t.Fatalf("no C files: %v", err)
	}
	for _, source := range sources {
		for _, suffix := range []string{"_bpfel.go", "_bpfel.o"} {
			name := strings.TrimSuffix(source, ".bpf.c") + suffix
			made, err := os.ReadFile(filepath.Join(copied, name))
			if err != nil {
				t.Fatal(err)
			}
			committed, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(made, committed) {
				t.Errorf("%s is not what the C files make: run make bpf", name)
			}
		}
	}
}

// Before Linux 6.16 each CPU takes 128 free entries of an LRU map at once. No map forgets what lives on hosts
// with up to 512 CPUs.
func TestLiveEntriesOutlastManyCPUs(t *testing.T) {
	const cpus, each = 512, 128
	for name, load := range map[string]func() (*ebpf.CollectionSpec, error){
		"starts": cudabpf.LoadStarts, "exits": cudabpf.LoadExits, "launches": cudabpf.LoadLaunches,
		"memory": func() (*ebpf.CollectionSpec, error) { return cudabpf.LoadMemoryFor(cpus) },
	} {
		spec, err := load()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range spec.Maps {
			if m.Type == ebpf.LRUHash && m.MaxEntries < cpus*each {
				t.Errorf("%s: %s has %d entries, want %d", name, m.Name, m.MaxEntries, cpus*each)
			}
		}
	}
}

// kernel is a release of Linux.
type kernel struct{ major, minor int }

func (k kernel) before(o kernel) bool {
	return k.major < o.major || k.major == o.major && k.minor < o.minor
}

// The oldest kernel that an object needs is the one that the package and the README state.
func TestObjectsNeedTheStatedKernel(t *testing.T) {
	for _, tt := range []struct {
		name string
		load func() (*ebpf.CollectionSpec, error)
		want kernel
	}{
		{"starts", cudabpf.LoadStarts, kernel{5, 8}},
		{"exits", cudabpf.LoadExits, kernel{5, 8}},
		{"launches", cudabpf.LoadLaunches, kernel{5, 12}},
		{"memory", cudabpf.LoadMemory, kernel{5, 15}},
	} {
		spec, err := tt.load()
		if err != nil {
			t.Fatal(err)
		}
		var got kernel
		for _, program := range spec.Programs {
			for _, ins := range program.Instructions {
				if needs := neededBy(t, ins); got.before(needs) {
					got = needs
				}
			}
		}
		if got != tt.want {
			t.Errorf("%s needs Linux %d.%d, want %d.%d", tt.name, got.major, got.minor, tt.want.major, tt.want.minor)
		}
	}
}

// neededBy is the kernel that came first with an instruction, as include/uapi/linux/bpf.h
// and its history have it.
func neededBy(t *testing.T, ins asm.Instruction) kernel {
	t.Helper()
	switch {
	case ins.IsBuiltinCall() && ins.Constant == int64(asm.FnGetAttachCookie):
		return kernel{5, 15}
	case ins.IsBuiltinCall() && ins.Constant > int64(asm.FnRingbufQuery):
		t.Fatalf("%v: say here which kernel has it", ins)
	case ins.IsBuiltinCall() && ins.Constant >= int64(asm.FnRingbufOutput):
		return kernel{5, 8}
	case ins.OpCode.Class().IsStore() && ins.OpCode.Mode() == asm.AtomicMode && ins.Constant != 0: // not a plain addition
		return kernel{5, 12}
	}
	return kernel{}
}
