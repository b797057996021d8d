package cudaprobe

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"

	"github.com/laxity/laxity/internal/cudaprobe/cudafile"
)

// attacher attaches programs to functions: to all at once if the kernel can do that (uprobe_multi),
// else one after another.
type attacher struct{ multi bool }

// newAttacher inspects the kernel. uprobe_multi came with 6.6, but before 6.10 it followed one
// thread when asked for a whole process.
func newAttacher(oneByOne bool) attacher {
	const fixed = 6<<16 | 10<<8
	version, err := features.LinuxVersionCode()
	return attacher{multi: !oneByOne && err == nil && version >= fixed && features.HaveBPFLinkUprobeMulti() == nil}
}

// load loads programs and maps into the kernel, the programs in the form that attach needs, and
// assigns them to a struct that bpf2go made. types caches the kernel's types: reading them takes
// some 10 ms and a few MiB. shared maps replace those of the same names.
func (a attacher) load(spec func() (*ebpf.CollectionSpec, error), to any, types *btf.Cache, shared map[string]*ebpf.Map) error {
	// Before Linux 5.11 maps count as locked memory. If this limit may not be raised, it may still
	// be high enough.
	_ = rlimit.RemoveMemlock()
	s, err := spec()
	if err != nil {
		return err
	}
	for _, program := range s.Programs {
		if program.Type == ebpf.Kprobe && a.multi {
			program.AttachType = ebpf.AttachTraceUprobeMulti
		}
	}
	return s.LoadAndAssign(to, &ebpf.CollectionOptions{Cache: types, MapReplacements: shared})
}

// attach attaches a program to functions of a file, given by their offsets. pid limits it to one
// process with all of its threads; 0 means every process that maps the file, now or later.
// atReturn: when the function returns. After an error it returns what is attached.
func (a attacher) attach(file *cudafile.File, program *ebpf.Program, offsets []uint64, pid int, atReturn bool) (links, error) {
	return a.attachPath(file.Name(), program, offsets, nil, pid, atReturn)
}

// put is a program, and where to attach it.
type put struct {
	kinds    []cudafile.Kind
	program  *ebpf.Program
	atReturn bool
}

// attachEach is attach for several programs. After an error it returns what is attached.
func (a attacher) attachEach(file *cudafile.File, functions cudafile.Functions, pid int, wanted []put) (all links, err error) {
	for _, want := range wanted {
		l, err := a.attach(file, want.program, functions.Of(want.kinds...), pid, want.atReturn)
		all = append(all, l...)
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

// attachPath is attach by the file's path, with a cookie for each place, if any.
func (a attacher) attachPath(path string, program *ebpf.Program, offsets, cookies []uint64, pid int, atReturn bool) (links, error) {
	if len(offsets) == 0 {
		return nil, nil
	}
	executable, err := link.OpenExecutable(path)
	if err != nil {
		return nil, err
	}
	if a.multi {
		attach := executable.UprobeMulti
		if atReturn {
			attach = executable.UretprobeMulti
		}
		l, err := attach(nil, program, &link.UprobeMultiOptions{Addresses: offsets, Cookies: cookies, PID: uint32(pid)})
		if err != nil {
			return nil, err
		}
		return links{l}, nil
	}
	attach := executable.Uprobe
	if atReturn {
		attach = executable.Uretprobe
	}
	var all links
	for i, offset := range offsets {
		o := &link.UprobeOptions{Address: offset, PID: pid}
		if cookies != nil {
			o.Cookie = cookies[i]
		}
		l, err := attach("", program, o)
		if err != nil {
			return all, err // detaching takes some 0.1 s each, and our caller may hold a lock
		}
		all = append(all, l)
	}
	return all, nil
}

// toSelf attaches a program to the entry point of this process, which does not run again.
func (a attacher) toSelf(program *ebpf.Program) (links, error) {
	const self = "/proc/self/exe"
	file, err := elf.Open(self)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	for _, p := range file.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && p.Vaddr <= file.Entry && file.Entry-p.Vaddr < p.Filesz {
			return a.attachPath(self, program, []uint64{file.Entry - p.Vaddr + p.Off}, nil, os.Getpid(), false)
		}
	}
	return nil, fmt.Errorf("%s has no entry point", self)
}

// links keep programs attached until they are closed.
type links []link.Link

// Close detaches all of them.
func (l links) Close() error {
	var errs []error
	for _, one := range l {
		errs = append(errs, one.Close())
	}
	return errors.Join(errs...)
}
