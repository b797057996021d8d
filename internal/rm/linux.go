package rm

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	controlDevice = "/dev/nvidiactl"
	driverVersion = "/proc/driver/nvidia/version"
	// gpuInformation has a line "GPU UUID:" and one "Device Minor:" for each GPU.
	gpuInformation = "/proc/driver/nvidia/gpus/*/information"
)

// System is the kernel of this machine. Descriptors of other users' processes need CAP_SYS_PTRACE.
func System() Kernel { return &system{} }

type system struct {
	once   sync.Once
	majors []uint32
	err    error
}

// nvidia are the majors of NVIDIA's devices in /proc/devices. Branch 535 calls them
// nvidia-frontend, later ones nvidia and nvidiactl.
func (s *system) nvidia() ([]uint32, error) {
	s.once.Do(func() {
		text, err := os.ReadFile("/proc/devices")
		if err != nil {
			s.err = err
			return
		}
		s.majors = nvidiaMajors(text)
	})
	return s.majors, s.err
}

func nvidiaMajors(devices []byte) (majors []uint32) {
	for lines := bufio.NewScanner(bytes.NewReader(devices)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if strings.HasPrefix(lines.Text(), "Block") {
			break
		}
		if len(fields) != 2 || !slices.Contains([]string{"nvidia", "nvidia-frontend", "nvidiactl"}, fields[1]) {
			continue
		}
		if n, err := strconv.ParseUint(fields[0], 10, 32); err == nil && !slices.Contains(majors, uint32(n)) {
			majors = append(majors, uint32(n))
		}
	}
	return majors
}

func (s *system) Driver() (string, error) {
	text, err := os.ReadFile(driverVersion)
	if err != nil {
		return "", err
	}
	return parseVersion(string(text))
}

// parseVersion finds the version in the first line of /proc/driver/nvidia/version:
// "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (…)".
func parseVersion(text string) (string, error) {
	line, _, _ := strings.Cut(text, "\n")
	for _, word := range strings.Fields(line) {
		branch, rest, ok := strings.Cut(word, ".")
		if !ok {
			continue
		}
		if _, err := strconv.Atoi(branch); err == nil && strings.Trim(rest, "0123456789.") == "" {
			return word, nil
		}
	}
	return "", fmt.Errorf("no version in %q", line)
}

func (s *system) Uptime() (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0, err
	}
	return time.Duration(t.Nano()), nil
}

func (s *system) Stat(pid int) (Stat, error) {
	stat, err := statOf(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return Stat{}, fmt.Errorf("process %d: %w", pid, ErrGone)
	}
	stat.Exiting = stat.Exiting && another(pid) == 0
	return stat, err
}

// parseStat reads a line of /proc/PID/stat. The name in it may hold any character, parentheses too.
func parseStat(text string) (Stat, error) {
	const (
		state   = 0 // of the fields after the name
		flags   = 6
		start   = 19
		exiting = 0x4 // PF_EXITING
	)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) <= start {
		return Stat{}, fmt.Errorf("/proc/PID/stat has no start time: %q", text)
	}
	f, err := strconv.ParseUint(fields[flags], 10, 64)
	if err != nil {
		return Stat{}, fmt.Errorf("flags in /proc/PID/stat: %w", err)
	}
	began, err := strconv.ParseUint(fields[start], 10, 64)
	if err != nil {
		return Stat{}, fmt.Errorf("start time in /proc/PID/stat: %w", err)
	}
	dead := slices.Contains([]string{"Z", "X", "x"}, fields[state])
	return Stat{Start: began, Exiting: dead || f&exiting != 0}, nil
}

func (s *system) Descriptors(ctx context.Context, pid int) ([]int, error) {
	dir, names, err := entries(ctx, pid)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return nil, fmt.Errorf("process %d: %w", pid, ErrGone)
	} else if err != nil {
		return nil, err
	}
	var fds []int
	for i, name := range names {
		if i%256 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		fd, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		// The link leads to the open file itself, whatever its path in that container is. DONT_SYNC
		// asks no file server that may hang.
		device, err := s.device(unix.AT_FDCWD, dir+"/"+name, unix.AT_STATX_DONT_SYNC)
		if err == nil && device.control() {
			fds = append(fds, fd)
		}
	}
	slices.Sort(fds)
	return fds, nil
}

func (s *system) device(dir int, path string, flags int) (Device, error) {
	var st unix.Statx_t
	if err := unix.Statx(dir, path, flags, unix.STATX_TYPE, &st); err != nil {
		return Device{}, err
	}
	majors, err := s.nvidia()
	if err != nil {
		return Device{}, err
	}
	return Device{
		Char:   st.Mode&unix.S_IFMT == unix.S_IFCHR,
		NVIDIA: slices.Contains(majors, st.Rdev_major),
		Major:  st.Rdev_major,
		Minor:  st.Rdev_minor,
	}, nil
}

func (s *system) Device(fd int) (Device, error) { return s.device(fd, "", unix.AT_EMPTY_PATH) }

func (s *system) Pidfd(pid int) (int, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return -1, fmt.Errorf("%w (%w)", ErrGone, err)
	}
	return fd, err
}

func (s *system) Duplicate(pidfd, fd int) (int, error) {
	dup, err := unix.PidfdGetfd(pidfd, fd, 0) // with FD_CLOEXEC, always
	if errors.Is(err, unix.EBADF) || errors.Is(err, unix.ESRCH) {
		dup, err = duplicateOfThread(pidfd, fd, err)
	}
	switch {
	case errors.Is(err, unix.ESRCH):
		return -1, fmt.Errorf("%w (%w)", ErrGone, err)
	case errors.Is(err, unix.EBADF):
		return -1, fmt.Errorf("%w: it closed that descriptor (%w)", ErrChanged, err)
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.ENOSYS):
		return -1, fmt.Errorf("%w: it needs Linux 5.6 and CAP_SYS_PTRACE (%w)", ErrUnsupported, err)
	}
	return dup, err
}

func (s *system) Open() (int, error) {
	fd, err := unix.Open(controlDevice, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	device, err := s.Device(fd)
	if err == nil && !device.control() {
		err = fmt.Errorf("%s is not NVIDIA's control device", controlDevice)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func (s *system) OpenGPU(uuid string) (int, error) {
	files, err := filepath.Glob(gpuInformation)
	if err != nil {
		return -1, err
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return -1, err
		}
		if minor, ok := minorOf(string(text), uuid); ok {
			return unix.Open("/dev/nvidia"+minor, unix.O_RDWR|unix.O_CLOEXEC, 0)
		}
	}
	return -1, fmt.Errorf("no GPU in %s has the UUID %s: %w", gpuInformation, uuid, fs.ErrNotExist)
}

// minorOf finds the minor of a GPU's device in its information, if it has that UUID.
func minorOf(information, uuid string) (minor string, ok bool) {
	for line := range strings.Lines(information) {
		name, value, _ := strings.Cut(line, ":")
		switch value = strings.TrimSpace(value); strings.TrimSpace(name) {
		case "GPU UUID":
			ok = value == uuid
		case "Device Minor":
			minor = value
		}
	}
	return minor, ok && minor != ""
}

func (s *system) Map(fd, size int) ([]byte, error) {
	return unix.Mmap(fd, 0, size, unix.PROT_READ, unix.MAP_SHARED)
}

func (s *system) Unmap(memory []byte) error { return unix.Munmap(memory) }

func (s *system) Close(fd int) error { return unix.Close(fd) }

// paramsOffset is where NVOS21 and NVOS54 have the pointer to the parameters.
const paramsOffset = 16

func (s *system) Ioctl(fd int, request uint32, arg, params []byte) error {
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&arg[0])
	if len(params) > 0 {
		pin.Pin(&params[0])
		le.PutUint64(arg[paramsOffset:], uint64(uintptr(unsafe.Pointer(&params[0]))))
		defer func() { clear(arg[paramsOffset : paramsOffset+8]) }()
	}
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), uintptr(unsafe.Pointer(&arg[0])))
		switch errno {
		case 0:
			return nil
		case unix.EINTR, unix.EAGAIN: // as NVIDIA's own library does
			continue
		}
		return errno
	}
}
