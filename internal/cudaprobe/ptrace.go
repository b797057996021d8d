package cudaprobe

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// CheckTrace reports whether this process may trace others, which denying a call needs; else the
// error wraps ErrUnsupported.
func CheckTrace() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("own capabilities: %w", err)
	}
	if data[0].Effective&(1<<unix.CAP_SYS_PTRACE) == 0 {
		return fmt.Errorf("%w: a call is denied by ptrace, which needs CAP_SYS_PTRACE (run as root, or --cap-add SYS_PTRACE)", ErrUnsupported)
	}
	// No process has this number: EPERM comes only from a filter of the call itself.
	const nobody = 1<<22 + 1
	if err := unix.PtraceSeize(nobody); errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("%w: a call is denied by ptrace, which a system call filter refuses (SystemCallFilter= of the unit, or the container's seccomp profile)", ErrUnsupported)
	}
	// Yama's strictest mode lets no process trace.
	if scope, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope"); err == nil && strings.TrimSpace(string(scope)) == "3" {
		return fmt.Errorf("%w: a call is denied by ptrace, which /proc/sys/kernel/yama/ptrace_scope = 3 forbids", ErrUnsupported)
	}
	return nil
}
