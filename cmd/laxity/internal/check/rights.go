package check

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// rightsFacts are what this process may do.
type rightsFacts struct {
	uid   int
	caps  uint64 // effective, a bit each
	err   error  // of reading them
	pidNS uint64 // inode of the PID namespace
	pidfd error
}

// hostPIDNamespace is the kernel's PROC_PID_INIT_INO.
const hostPIDNamespace = 0xEFFFFFFC

func gatherRights(proc string) rightsFacts {
	f := rightsFacts{uid: os.Geteuid()}
	status, err := os.ReadFile(filepath.Join(proc, "self", "status"))
	if err == nil {
		f.caps, err = effective(status)
	}
	f.err = err
	var stat unix.Stat_t
	if unix.Stat(filepath.Join(proc, "self", "ns", "pid"), &stat) == nil {
		f.pidNS = stat.Ino
	}
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if f.pidfd = err; err == nil {
		_ = unix.Close(fd)
	}
	return f
}

// effective reads CapEff of /proc/PID/status.
func effective(status []byte) (uint64, error) {
	for lines := bufio.NewScanner(bytes.NewReader(status)); lines.Scan(); {
		if hex, ok := strings.CutPrefix(lines.Text(), "CapEff:"); ok {
			return strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
		}
	}
	return 0, fmt.Errorf("no CapEff in /proc/self/status")
}

// wantedCaps are the capabilities that exporter and actuator use. Each may be
// replaced by CAP_SYS_ADMIN where or says so.
var wantedCaps = []struct {
	bit   int
	name  string
	lost  string
	admin bool // CAP_SYS_ADMIN does as well
}{
	{unix.CAP_SYS_PTRACE, "SYS_PTRACE", "which driver library a container uses cannot be seen, and its channels cannot be controlled", false},
	{unix.CAP_DAC_READ_SEARCH, "DAC_READ_SEARCH", "files of containers that belong to other users cannot be read", false},
	{unix.CAP_BPF, "BPF", "no probes: tasks are seen by polling, and limits of GPU memory are only watched", true},
	{unix.CAP_PERFMON, "PERFMON", "no probes: tasks are seen by polling, and limits of GPU memory are only watched", true},
	{unix.CAP_KILL, "KILL", "processes stopped at an allocation could not be continued", false},
}

func (f rightsFacts) judge() []Finding {
	out := findings{area: "Permissions"}
	has := func(bit int) bool { return f.caps&(1<<uint(bit)) != 0 }
	var missing, lost []string
	for _, c := range wantedCaps {
		if has(c.bit) || c.admin && has(unix.CAP_SYS_ADMIN) {
			continue
		}
		missing = append(missing, "CAP_"+c.name)
		if len(lost) == 0 || lost[len(lost)-1] != c.lost {
			lost = append(lost, c.lost)
		}
	}
	who := fmt.Sprintf("user %d", f.uid)
	switch {
	case f.err != nil:
		out.add(Warn, "capabilities", f.err.Error(), "they are not known", "")
	case len(missing) > 0:
		out.add(Warn, "capabilities", who+" lacks "+strings.Join(missing, ", "), strings.Join(lost, "; "),
			"sudo laxity check, to examine what root would have; in a container see the capabilities in compose/compose.yaml")
	default:
		out.ok("capabilities", who+" has all that are needed")
	}
	if f.pidNS == hostPIDNamespace {
		out.ok("PID namespace", "the host's")
	} else {
		out.add(Fail, "PID namespace", "not the host's", "GPU processes are known by their PIDs on the host; none could be found", "start the container with --pid=host")
	}
	if f.pidfd == nil {
		out.ok("pidfd", "processes can be waited for")
	} else {
		out.add(Fail, "pidfd", f.pidfd.Error(), "ends of tasks cannot be seen", "Linux 5.3 or later; in a container, a seccomp profile that lets pidfd_open through")
	}
	return out.list
}
