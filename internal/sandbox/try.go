package sandbox

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// nobody is a PID that no process has: more than the kernel's PID_MAX_LIMIT.
const nobody = 1<<22 + 1

const (
	bpfFS = "/sys/fs/bpf"
	dev   = "/dev"
)

func try(n Needs) tried {
	t := tried{place: where(), caps: effective(), calls: tryCalls(), folders: map[string]error{}}
	if t.driver = driver(); t.driver && n.Devices {
		t.devices = openDevices(dev)
	}
	t.bpf = pins()
	for _, dir := range n.Folders {
		t.folders[dir] = writable(dir)
	}
	return t
}

// where finds out where the program runs: systemd tells its services, and engines leave a file.
func where() place {
	for _, file := range []string{"/.dockerenv", "/run/.containerenv"} {
		if _, err := os.Stat(file); err == nil && os.Getenv("INVOCATION_ID") == "" {
			return inContainer
		}
	}
	if os.Getenv("INVOCATION_ID") != "" {
		return inUnit
	}
	return inNothing
}

func effective() uint64 {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if hex, ok := strings.CutPrefix(lines.Text(), "CapEff:"); ok {
			caps, _ := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
			return caps
		}
	}
	return 0
}

// tryCalls makes each call with an argument that the kernel rejects, unless the call concerns this
// process alone. Only a filter that refuses the call itself answers EPERM or ENOSYS.
func tryCalls() map[string]error {
	all := map[string]error{}
	say := func(name string, err error) {
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EACCES) {
			all[name] = err
		}
	}
	pidfd, err := unix.PidfdOpen(os.Getpid(), 0)
	say("pidfd_open", err)
	if err != nil {
		pidfd = -1
	}
	dup, err := unix.PidfdGetfd(pidfd, 0, 0)
	say("pidfd_getfd", err)
	if err == nil {
		_ = unix.Close(dup)
	}
	say("pidfd_send_signal", unix.PidfdSendSignal(pidfd, 0, nil, 0))
	if pidfd >= 0 {
		_ = unix.Close(pidfd)
	}
	say("ptrace", unix.PtraceSeize(nobody))
	const badCommand, badFlags = 1 << 20, ^uintptr(0)
	say("bpf", call(unix.SYS_BPF, badCommand, 0, 0, 0, 0))
	say("perf_event_open", call(unix.SYS_PERF_EVENT_OPEN, 0, 0, 0, 0, badFlags))
	var from, to byte
	local := unix.Iovec{Base: &from, Len: 1}
	remote := unix.RemoteIovec{Base: uintptr(unsafe.Pointer(&to)), Len: 1}
	_, err = unix.ProcessVMWritev(nobody, []unix.Iovec{local}, []unix.RemoteIovec{remote}, 0)
	runtime.KeepAlive(&to)
	say("process_vm_writev", err)
	return all
}

func call(number, a, b, c, d, e uintptr) error {
	if _, _, errno := unix.Syscall6(number, a, b, c, d, e, 0); errno != 0 {
		return errno
	}
	return nil
}

// driver reports whether NVIDIA's driver is loaded, whether its device files are visible or not.
func driver() bool {
	text, err := os.ReadFile("/proc/devices")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 2 && strings.HasPrefix(f[1], "nvidia") {
			return true
		}
	}
	return false
}

// openDevices opens the resource manager's device, and that of unified memory if there is one. Of
// the cards it only checks that one exists: opening a card may wake it, which takes a second, and a
// program that may open the former may open the cards, too.
func openDevices(dir string) map[string]error {
	all := map[string]error{}
	control, uvm := filepath.Join(dir, "nvidiactl"), filepath.Join(dir, "nvidia-uvm")
	all[control] = open(control)
	if err := open(uvm); !errors.Is(err, fs.ErrNotExist) { // it appears with the first CUDA program
		all[uvm] = err
	}
	if cards, _ := filepath.Glob(filepath.Join(dir, "nvidia[0-9]*")); len(cards) == 0 { // the pattern is well-formed
		all[filepath.Join(dir, "nvidia0")] = fs.ErrNotExist
	}
	return all
}

func open(path string) error {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err
}

// pins returns why no object can be pinned in the BPF file system; nil if one can.
func pins() error {
	var stat unix.Statfs_t
	if err := unix.Statfs(bpfFS, &stat); err != nil {
		return err
	}
	if stat.Type != unix.BPF_FS_MAGIC {
		return errors.New("no BPF file system is mounted there")
	}
	return unix.Access(bpfFS, unix.W_OK)
}

// writable returns why dir, or the nearest existing folder above it, cannot be written to.
func writable(dir string) error {
	for _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir); _, err = os.Stat(dir) {
		dir = filepath.Dir(dir)
	}
	f, err := os.CreateTemp(dir, ".writable-*")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}
