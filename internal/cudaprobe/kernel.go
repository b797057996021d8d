package cudaprobe

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// hostPIDNamespace is the inode of the first PID namespace, a constant of the
// kernel (PROC_PID_INIT_INO).
const hostPIDNamespace = 0xEFFFFFFC

// checkKernel checks for needs of the programs whose absence the kernel would not report.
func checkKernel(proc string, types *btf.Cache) error {
	if err := checkNamespace(proc); err != nil {
		return err
	}
	return checkTypes(types.Kernel)
}

// checkNamespace checks that the PIDs of BPF are ours: they are those of the first PID namespace,
// whatever namespace the caller is in.
func checkNamespace(proc string) error {
	if proc == "" {
		proc = "/proc"
	}
	var stat unix.Stat_t
	if err := unix.Stat(filepath.Join(proc, "self", "ns", "pid"), &stat); err != nil {
		return fmt.Errorf("own PID namespace: %w", err)
	}
	if stat.Ino != hostPIDNamespace {
		return fmt.Errorf("%w: this is not the host's PID namespace (start the container with --pid=host)", ErrUnsupported)
	}
	return nil
}

// filtered reports whether this process has a system call filter (seccomp).
func filtered() bool {
	status, err := os.ReadFile("/proc/self/status")
	return err == nil && strings.Contains(string(status), "\nSeccomp:\t2\n")
}

// lockdown returns the kernel's lockdown mode, "" for none.
func lockdown() string {
	data, err := os.ReadFile("/sys/kernel/security/lockdown")
	if err != nil {
		return ""
	}
	for word := range strings.FieldsSeq(string(data)) {
		if mode, ok := strings.CutPrefix(word, "["); ok && mode != "none]" {
			return strings.TrimSuffix(mode, "]")
		}
	}
	return ""
}

// checkTypes checks that the kernel describes its types: there the programs find the fields that
// tell processes apart.
func checkTypes(load func() (*btf.Spec, error)) error {
	if _, err := load(); err != nil {
		return fmt.Errorf("%w: the kernel does not describe its types (BTF): it must be built with CONFIG_DEBUG_INFO_BTF, as those of Debian 11, Ubuntu 20.10, RHEL 9 and later are: %w", ErrUnsupported, err)
	}
	return nil
}
