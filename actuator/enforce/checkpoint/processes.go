package checkpoint

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/laxity/laxity/internal/cgroup"
)

// Processes reads what the kernel says of the processes of containers.
type Processes interface {
	// Of returns the processes of a container, by host PID. It MUST return an error where it may have
	// missed one.
	Of(containerID string) ([]int, error)
	// Stat reads one process. The error wraps fs.ErrNotExist when all its threads have ended.
	Stat(pid int) (Stat, error)
	// HostFree returns how many bytes a process of a container may still take, within the host's memory
	// without the bytes that are promised to others, and within the limits of its control groups; why
	// names the tighter one. It MUST return an error where it cannot tell the limits: the kernel kills
	// what takes more.
	HostFree(containerID string, pid int, promised uint64) (bytes uint64, why string, err error)
}

// Stat is what swapping must know of one process.
type Stat struct {
	// Start is when it began, in clock ticks since the boot; with the PID it names
	// the process.
	Start uint64
	// Stopped: a signal stopped it, as at an allocation. It cannot be locked, because its own threads
	// do that.
	Stopped bool
	// Traced: a debugger is attached.
	Traced bool
}

// Proc is Processes by a proc file system.
type Proc struct {
	// Path is where it is mounted: /proc.
	Path string
	// ContainerOf returns the id of the container that a process belongs to. The error wraps fs.ErrNotExist
	// when the process is gone.
	ContainerOf func(pid int) (id string, ok bool, err error)

	groups sync.Map // folder of the control group by container id, where it is known
}

// Of implements Processes. The first time it reads all of proc, some ms for a thousand
// processes, and then the container's control group.
func (p *Proc) Of(containerID string) ([]int, error) {
	if dir, ok := p.groups.Load(containerID); ok {
		if pids := members(dir.(string)); len(pids) > 0 {
			return pids, nil
		}
		p.groups.Delete(containerID)
	}
	pids, err := p.search(containerID)
	if err != nil || len(pids) == 0 {
		return nil, err
	}
	// The folder counts as known once two readings find the same members. Processes come and go, so
	// that may need another try.
	g, err := cgroup.Of(p.Path, slices.Min(pids), "freezer")
	if found := members(g.Dir); err == nil && len(found) == len(pids) && !slices.ContainsFunc(found, func(pid int) bool {
		return !slices.Contains(pids, pid)
	}) {
		p.groups.Store(containerID, g.Dir)
	}
	return pids, nil
}

// members returns the processes of a control group and of the groups below it; none if one of them
// cannot be read.
func members(dir string) []int {
	var pids []int
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		for line := range strings.Lines(string(text)) {
			if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}
		return err
	})
	if err != nil {
		return nil
	}
	return pids
}

// search reads all of proc. It leaves out processes that have ended, and those that the machine does not
// let us read: hidepid and security modules hide them for good, from every step. Any other error may hide
// one of the container's for a moment, which would then be left on a GPU.
func (p *Proc) search(containerID string) ([]int, error) {
	dir, err := os.Open(p.Path)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		id, ok, err := p.ContainerOf(pid)
		switch {
		case err == nil && ok && id == containerID:
			pids = append(pids, pid)
		case err == nil, errors.Is(gone(err), fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		default:
			return nil, err
		}
	}
	return pids, nil
}

// Stat implements Processes. The first thread of a process may end while others go on (pthread_exit in
// main): such a process lives, and they tell whether it is stopped or traced.
func (p *Proc) Stat(pid int) (Stat, error) {
	dir := filepath.Join(p.Path, strconv.Itoa(pid))
	first, err := threadOf(dir)
	if err != nil || !first.ended {
		return first.Stat, err
	}
	// Threads start others and end while we read. All have ended only if we have seen as many as there
	// were before.
	for range 10 {
		if first, err = threadOf(dir); err != nil {
			return Stat{}, err
		}
		tasks, err := os.ReadDir(filepath.Join(dir, "task"))
		if err != nil {
			return Stat{}, gone(err)
		}
		s, lives, ended := Stat{Start: first.Start}, false, 0
		for _, task := range tasks {
			t, err := threadOf(filepath.Join(dir, "task", task.Name()))
			switch {
			case errors.Is(err, fs.ErrNotExist):
			case err != nil:
				return Stat{}, err
			case t.ended:
				ended++
			default:
				lives = true
				s.Stopped, s.Traced = s.Stopped || t.Stopped, s.Traced || t.Traced
			}
		}
		switch {
		case lives:
			return s, nil
		case ended >= first.threads:
			return Stat{}, fmt.Errorf("process %d has ended: %w", pid, fs.ErrNotExist)
		}
	}
	return Stat{}, fmt.Errorf("process %d: its threads change while they are read", pid)
}

// thread is what a folder of proc says of a process's first thread, or of any one.
type thread struct {
	Stat
	ended   bool
	threads int // of its process; one that has ended counts until its parent, or its tracer, has noticed
}

func threadOf(dir string) (thread, error) {
	line, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return thread{}, gone(err)
	}
	// The name in brackets may hold anything; the state is the first field after it, the number of
	// threads the 18th, the start the 20th.
	fields := strings.Fields(string(line[bytes.LastIndexByte(line, ')')+1:]))
	if len(fields) < 20 {
		return thread{}, fmt.Errorf("%s/stat cannot be read: %q", dir, line)
	}
	threads, err := strconv.Atoi(fields[17])
	if err != nil {
		return thread{}, fmt.Errorf("%s/stat: %w", dir, err)
	}
	start, err := strconv.ParseUint(fields[19], 10, 64)
	if err != nil {
		return thread{}, fmt.Errorf("%s/stat: %w", dir, err)
	}
	if fields[0] == "Z" || fields[0] == "X" {
		return thread{Stat: Stat{Start: start}, ended: true, threads: threads}, nil
	}
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return thread{}, gone(err)
	}
	tracer, _ := field(string(status), "TracerPid:")
	return thread{Stat: Stat{Start: start, Stopped: fields[0] == "T", Traced: tracer != 0}, threads: threads}, nil
}

// gone maps all errors of a process that ended while it was read to one.
func gone(err error) error {
	if errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return err
}

// field reads a number of a file of lines "name: number unit".
func field(text, name string) (uint64, bool) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != name {
			continue
		}
		n, err := strconv.ParseUint(f[1], 10, 64)
		return n, err == nil
	}
	return 0, false
}

// HostFree implements Processes. Page cache that can be given back counts as free.
func (p *Proc) HostFree(containerID string, pid int, promised uint64) (uint64, string, error) {
	info, err := os.ReadFile(filepath.Join(p.Path, "meminfo"))
	if err != nil {
		return 0, "", err
	}
	kib, ok := field(string(info), "MemAvailable:")
	if !ok {
		return 0, "", errors.New("meminfo has no MemAvailable")
	}
	free, why := kib<<10, "the host's memory"
	if promised > 0 {
		free -= min(free, promised)
		why += fmt.Sprintf(" (without %d MiB for other swaps)", promised>>20)
	}
	g, limited, err := p.memoryGroup(containerID, pid)
	if err != nil || !limited {
		return free, why, err
	}
	limit, used, stat := "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
	if g.V2 {
		limit, used, stat = "memory.max", "memory.current", "inactive_file"
	}
	// The limit of a group also bounds the groups below it.
	for dir := g.Dir; strings.HasPrefix(dir, g.Root); dir = filepath.Dir(dir) {
		most, ok, err := number(dir, limit)
		if err != nil {
			return 0, "", err
		}
		if !ok {
			continue
		}
		now, ok, err := number(dir, used)
		if err != nil || !ok {
			return 0, "", fmt.Errorf("the use of its memory limit of %d MiB cannot be read: %w", most>>20, cmp.Or(err, fs.ErrNotExist))
		}
		text, _ := os.ReadFile(filepath.Join(dir, "memory.stat")) // without it no cache counts as free
		cache, _ := field(string(text), stat)
		left := most - min(most, now-min(now, cache))
		if left < free {
			free, why = left, fmt.Sprintf("its memory limit of %d MiB", most>>20)
		}
	}
	return free, why, nil
}

// memoryGroup returns the control group that limits the memory of a process of a container; ok is false
// where the kernel limits none. From a cgroup namespace of our own, as in a pod, the process's path leads
// nowhere, and the container's group is found by the id.
func (p *Proc) memoryGroup(containerID string, pid int) (g cgroup.Group, ok bool, err error) {
	const controller = "memory"
	g, err = cgroup.Of(p.Path, pid, controller)
	if err == nil {
		if _, err = os.Lstat(g.Dir); err == nil {
			return g, true, nil
		}
	}
	path, v2, perr := cgroup.Path(p.Path, pid, controller)
	if perr != nil && !errors.Is(gone(perr), fs.ErrNotExist) {
		return g, false, perr
	}
	g, ferr := cgroup.OfContainer(p.Path, controller, containerID)
	switch {
	case errors.Is(ferr, cgroup.ErrNotMounted) && path == "":
		return g, false, nil
	case ferr == nil && path != "" && g.V2 != v2: // a hierarchy that does not limit memory
		ferr = errors.New("the control groups that limit memory are not mounted")
	}
	if ferr != nil {
		return g, false, fmt.Errorf("its memory limit is not known, because its control group is not visible (mount the host's /sys/fs/cgroup): %w; %w",
			err, ferr)
	}
	if _, below, ok := cgroup.Cut(path, containerID); ok { // the process may be in a group with a tighter limit
		g.Dir = filepath.Join(append([]string{g.Dir}, below...)...)
	}
	return g, true, nil
}

// number reads a file of a control group; ok is false where there is no such file, as in the root group,
// and where it is "max".
func number(dir, name string) (n uint64, ok bool, err error) {
	b, err := os.ReadFile(filepath.Join(dir, name))
	text := strings.TrimSpace(string(b))
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && text == "max":
		return 0, false, nil
	case err != nil:
		return 0, false, err
	}
	if n, err = strconv.ParseUint(text, 10, 64); err != nil {
		return 0, false, fmt.Errorf("%s in %s: %w", name, dir, err)
	}
	return n, true, nil
}
