package cudaprobe

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
)

// keepers are programs that keep stopped what others continue.
type keepers struct {
	programs []*ebpf.Program
	links    links
}

// keep attaches the programs: ifHeld goes on only for a process that is to stay
// stopped, and wake runs in each thread that a CPU has turned to. Where the kernel
// does not let us, holding works all the same, but a tenant that continues itself
// may get one call through: the error says so.
func (k *keepers) keep(m maps, ifHeld func(*builder), wake asm.Instructions, offsets *taskOffsets) error {
	if offsets == nil {
		return fmt.Errorf("%w: the kernel does not describe its types (CONFIG_DEBUG_INFO_BTF)", ErrUnsupported)
	}
	if err := k.hook("signal_generate", onSignal(m, ifHeld, offsets, kernelFunction("bpf_send_signal_task"))); err != nil {
		return err
	}
	return k.hook("sched_exit_tp", wake) // since Linux 6.16
}

// hook runs a program at one of the kernel's trace points.
func (k *keepers) hook(point string, code asm.Instructions) error {
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: point, License: license, Instructions: code,
	})
	if err != nil {
		return explain("load the program for "+point, err)
	}
	k.programs = append(k.programs, program)
	l, err := link.AttachTracing(link.TracingOptions{Program: program, AttachType: ebpf.AttachTraceRawTp})
	if err != nil {
		return explain("attach to "+point, err)
	}
	k.links = append(k.links, l)
	return nil
}

// Close takes the programs off.
func (k *keepers) Close() error {
	errs := []error{k.links.Close()}
	for _, program := range k.programs {
		errs = append(errs, program.Close())
	}
	return errors.Join(errs...)
}

// kernelFunction returns the number of a function that the kernel lends to BPF
// programs; 0: it has none.
func kernelFunction(name string) int64 {
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return 0
	}
	var function *btf.Func
	if err := spec.TypeByName(name, &function); err != nil {
		return 0
	}
	id, err := spec.TypeID(function)
	if err != nil {
		return 0
	}
	return int64(id)
}
