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

// checkNamespace makes sure that the PIDs that BPF tells are ours: it tells those
// of the first PID namespace, whatever namespace the caller is in.
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

// taskOffsets are the places in the kernel's struct task_struct of what tells
// processes apart.
type taskOffsets struct {
	leader int32 // group_leader: the process's main thread
	start  int32 // start_boottime: nanoseconds since boot
	execs  int32 // self_exec_id: how often it has called exec
	signal int32 // signal: what the threads of a process share
	live   int32 // in that: how many of them have not begun to exit
	groups *groupOffsets
}

// kernelOffsets reads them from the kernel's own description of its types. nil:
// it has none (CONFIG_DEBUG_INFO_BTF), and events are not filtered.
func kernelOffsets() *taskOffsets {
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return nil
	}
	var task *btf.Struct
	if err := spec.TypeByName("task_struct", &task); err != nil {
		return nil
	}
	var o taskOffsets
	for name, to := range map[string]*int32{"group_leader": &o.leader, "start_boottime": &o.start, "self_exec_id": &o.execs, "signal": &o.signal} {
		offset, ok := memberOffset(task.Members, name)
		if !ok {
			return nil
		}
		*to = int32(offset)
	}
	var shared *btf.Struct
	if err := spec.TypeByName("signal_struct", &shared); err != nil {
		return nil
	}
	live, ok := memberOffset(shared.Members, "live") // an atomic_t: one int
	if !ok {
		return nil
	}
	o.live = int32(live)
	o.groups = readGroupOffsets(spec)
	return &o
}

// memberOffset looks into nameless structs too, which kernels with a randomised
// layout have.
func memberOffset(members []btf.Member, name string) (uint32, bool) {
	for _, m := range members {
		if m.Name == name {
			return m.Offset.Bytes(), true
		}
		if inner, ok := m.Type.(*btf.Struct); ok && m.Name == "" {
			if offset, ok := memberOffset(inner.Members, name); ok {
				return m.Offset.Bytes() + offset, true
			}
		}
	}
	return 0, false
}
