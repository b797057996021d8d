package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/actuator/enforce/stop"
	"github.com/laxity/laxity/internal/cudaprobe"
	"github.com/laxity/laxity/internal/rm"
	"github.com/laxity/laxity/internal/sandbox"
)

// probe tries in a unit's sandbox what its program does, upon the process PID, which
// belongs to another user, and what no program may. It prints what came of each.
//
// PROC is a folder in the place of /proc for who asks which PID namespace it is in: the
// machine of the test has one of its own, and to look at the host's processes is refused there.
func probe(ctx context.Context, args []string) error {
	who, proc := args[0], args[2]
	pid, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	said := map[string]string{}
	try := func(name string, f func() error) {
		if err := f(); err != nil {
			said[name] = err.Error()
		} else {
			said[name] = "ok"
		}
	}
	try("probes", func() error { return cudaprobe.Check(cudaprobe.Options{Proc: proc}) })
	try("probes one by one", func() error { return cudaprobe.Check(cudaprobe.Options{Proc: proc, OneByOne: true}) }) // before Linux 6.6
	try("open /dev/nvidiactl", opens("/dev/nvidiactl"))
	try("descriptors", func() error { _, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)); return err })
	try("its files", func() error { _, err := os.Stat(fmt.Sprintf("/proc/%d/root/usr", pid)); return err })
	try("a user's socket", connects(ctx, os.Getenv("USERS_SOCKET")))
	if who != "exporter" {
		try("duplicate", func() error { return duplicate(pid) })
		try("signal", func() error { return unix.Kill(pid, unix.SIGCONT) })
		try("signal by pidfd", func() error { return signalled(pid) })
		try("record", func() error { return record(who, proc) })
	}
	if who == "actuator" {
		try("trace", func() error { return trace(pid) })
		try("trace check", cudaprobe.CheckTrace)
	}
	// What no sandbox lets through.
	try("open another device", opens("/dev/fuse"))
	try("make a device", func() error { return unix.Mknod("/tmp/sda", unix.S_IFBLK|0o600, 8<<8) })
	try("mount", func() error { return unix.Mount("none", "/tmp", "tmpfs", 0, "") })
	try("change the kernel", func() error { return os.WriteFile("/proc/sys/kernel/core_pattern", nil, 0o600) })
	try("write to /usr", func() error { return os.WriteFile("/usr/laxity", nil, 0o600) })
	try("load a module", func() error { return unix.FinitModule(0, "", 0) })
	try("make code", func() error {
		m, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			return err
		}
		return unix.Mprotect(m, unix.PROT_READ|unix.PROT_EXEC)
	})
	var lacks []sandbox.Lack
	switch who {
	case "actuator":
		lacks = sandbox.Check(sandbox.Actuator("/run/laxity", "/var/lib/laxity/actuator"))
	case "guardian":
		lacks = sandbox.Check(sandbox.Guardian("/run/laxity", "/var/lib/laxity/actuator"))
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{"said": said, "lacks": lacks})
}

// opens is nil where the sandbox lets a device be opened: there is no driver behind it.
func opens(path string) func() error {
	return func() error {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENODEV) {
			return nil
		}
		if err == nil {
			err = f.Close()
		}
		return err
	}
}

// connects to a Unix socket.
func connects(ctx context.Context, path string) func() error {
	return func() error {
		c, err := new(net.Dialer).DialContext(ctx, "unix", path)
		if err == nil {
			err = c.Close()
		}
		return err
	}
}

func duplicate(pid int) error {
	kernel := rm.System()
	fd, err := kernel.Pidfd(pid)
	if err != nil {
		return err
	}
	defer func() { _ = kernel.Close(fd) }()
	dup, err := kernel.Duplicate(fd, 1)
	if err != nil {
		return err
	}
	return kernel.Close(dup)
}

func signalled(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	return unix.PidfdSendSignal(fd, unix.SIGCONT, nil, 0)
}

// record: the actuator makes one in the BPF file system, and leaves it; the guardian reads
// it, and removes it.
func record(who, proc string) error {
	const name = "laxity-test"
	folder := cudaprobe.PinFolder(name)
	if who == "actuator" {
		g, err := cudaprobe.NewMemoryGuard(cudaprobe.GuardOptions{Options: cudaprobe.Options{Proc: proc}, Pins: name})
		if err != nil {
			return err
		}
		return g.Close()
	}
	left, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil || len(left) == 0 {
		return fmt.Errorf("the actuator's record is not seen: %w", err)
	}
	r, err := stop.OpenRecord(name)
	if err != nil {
		return err
	}
	return errors.Join(r.Close(), cudaprobe.RemoveRecord(folder))
}

// trace stops a process as a denial does, and reads where it stands.
func trace(pid int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.PtraceSeize(pid); err != nil {
		return err
	}
	if err := unix.PtraceInterrupt(pid); err != nil {
		return err
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(pid, &status, unix.WALL, nil); err != nil {
		return err
	}
	var regs unix.PtraceRegs
	if err := unix.PtraceGetRegs(pid, &regs); err != nil {
		return err
	}
	var word [8]byte
	if _, err := unix.PtracePeekData(pid, uintptr(regs.Rsp), word[:]); err != nil {
		return err
	}
	local := unix.Iovec{Base: &word[0], Len: 8}
	remote := unix.RemoteIovec{Base: uintptr(regs.Rsp), Len: 8}
	_, err := unix.ProcessVMWritev(pid, []unix.Iovec{local}, []unix.RemoteIovec{remote}, 0) // what is there
	return errors.Join(err, unix.PtraceDetach(pid))
}
