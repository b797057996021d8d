package checkpoint_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/enforce/checkpoint"
	"github.com/laxity/laxity/internal/cudaprobe/cudatest"
)

// tree writes files below a new folder; @ in a text stands for the folder.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for path, text := range files {
		path = filepath.Join(dir, path)
		check(t, os.MkdirAll(filepath.Dir(path), 0o755), nil)
		check(t, os.WriteFile(path, []byte(strings.ReplaceAll(text, "@", dir)), 0o600), nil)
	}
	return dir
}

const mounts = "1 1 0:1 / @/v2 rw - cgroup2 cgroup2 rw\n"

func TestHostFree(t *testing.T) {
	const meminfo = "MemTotal: 100 kB\nMemAvailable:    8388608 kB\n"
	const id = "c0ffee"
	for name, c := range map[string]struct {
		files map[string]string
		want  uint64
	}{
		"no groups on this machine": {map[string]string{"self/mountinfo": "", "7/cgroup": "1:name=systemd:/x\n"}, 8192 * mib},
		"v2, no limit": {map[string]string{"self/mountinfo": mounts, "7/cgroup": "0::/x\n", "v2/x/memory.max": "max\n",
			"v2/x/memory.current": "1\n"}, 8192 * mib},
		"v2, its own limit, cache counts as free": {map[string]string{"self/mountinfo": mounts, "7/cgroup": "0::/x\n", "v2/x/memory.max": "1073741824\n",
			"v2/x/memory.current": "536870912\n", "v2/x/memory.stat": "anon 5\ninactive_file 268435456\n"}, 768 * mib},
		"v2, that of the group above": {map[string]string{"self/mountinfo": mounts, "7/cgroup": "0::/a/x\n", "v2/a/x/memory.max": "max\n",
			"v2/a/x/memory.current": "1\n", "v2/a/memory.max": "2097152\n", "v2/a/memory.current": "1048576\n"}, mib},
		"v1": {map[string]string{"self/mountinfo": "1 1 0:1 / @/v1 rw - cgroup cgroup rw,memory\n", "7/cgroup": "3:memory:/x\n",
			"v1/x/memory.limit_in_bytes": "3145728\n", "v1/x/memory.usage_in_bytes": "1048576\n"}, 2 * mib},
		"over its limit": {map[string]string{"self/mountinfo": mounts, "7/cgroup": "0::/x\n", "v2/x/memory.max": "5\n",
			"v2/x/memory.current": "9\n"}, 0},
		"outside of our namespace": {map[string]string{"self/mountinfo": mounts, "7/cgroup": "0::/../x-" + id + ".scope\n",
			"v2/pods/x-" + id + ".scope/memory.max": "2097152\n", "v2/pods/x-" + id + ".scope/memory.current": "1048576\n"}, mib},
		"outside, a tighter one below": {map[string]string{"self/mountinfo": mounts, "7/cgroup": "0::/../x-" + id + ".scope/below\n",
			"v2/x-" + id + ".scope/below/memory.max": "2097152\n", "v2/x-" + id + ".scope/below/memory.current": "1048576\n",
			"v2/x-" + id + ".scope/memory.max": "max\n"}, mib},
		"outside, that of the pod": {map[string]string{"self/mountinfo": mounts, "7/cgroup": "0::/../x-" + id + ".scope\n",
			"v2/pod/x-" + id + ".scope/memory.max": "max\n", "v2/pod/memory.max": "2097152\n", "v2/pod/memory.current": "1048576\n"}, mib},
		"the path leads elsewhere": {map[string]string{"self/mountinfo": mounts, "7/cgroup": "0::/old/" + id + "\n",
			"v2/new/" + id + "/memory.max": "2097152\n", "v2/new/" + id + "/memory.current": "1048576\n"}, mib},
		"it ended, its container has a limit": {map[string]string{"self/mountinfo": mounts,
			"v2/" + id + "/memory.max": "2097152\n", "v2/" + id + "/memory.current": "1048576\n"}, mib},
	} {
		t.Run(name, func(t *testing.T) {
			c.files["meminfo"] = meminfo
			p := &checkpoint.Proc{Path: tree(t, c.files)}
			if got, why, err := p.HostFree(id, 7, 0); got != c.want || why == "" || err != nil {
				t.Errorf("%d (%s), %v; want %d", got, why, err, c.want)
			}
		})
	}
}

// What is promised to others is the host's memory, and not of the container's own limit.
func TestPromisedMemoryIsTheHosts(t *testing.T) {
	for promised, want := range map[uint64]uint64{0: 300 * mib, 100 * mib: 300 * mib, 800 * mib: 200 * mib, 2000 * mib: 0} {
		p := &checkpoint.Proc{Path: tree(t, map[string]string{"meminfo": "MemAvailable: 1024000 kB\n", "self/mountinfo": mounts,
			"7/cgroup": "0::/x\n", "v2/x/memory.max": "314572800\n", "v2/x/memory.current": "0\n"})}
		if got, why, err := p.HostFree("x", 7, promised); got != want || err != nil {
			t.Errorf("%d are promised: %d (%s), %v; want %d", promised, got, why, err, want)
		}
	}
}

// Where a limit cannot be told, it may be there: the kernel would kill the container for what we copy.
func TestUnknownMemoryLimitIsAnError(t *testing.T) {
	const id = "c0ffee"
	for name, files := range map[string]map[string]string{
		"its group is not visible":     {"self/mountinfo": mounts, "7/cgroup": "0::/../x-" + id + ".scope\n", "v2/y-other.scope/memory.max": "5\n"},
		"no groups are visible":        {"self/mountinfo": "", "7/cgroup": "0::/../x-" + id + ".scope\n"},
		"the path leads nowhere":       {"self/mountinfo": mounts, "7/cgroup": "0::/x\n", "v2/memory.max": "max\n"},
		"those with limits are hidden": {"self/mountinfo": mounts, "7/cgroup": "4:memory:/" + id + "\n0::/" + id + "\n", "v2/" + id + "/cgroup.procs": "7\n"},
		"a limit cannot be read":       {"self/mountinfo": mounts, "7/cgroup": "0::/x\n", "v2/x/memory.max/is a folder": ""},
		"a limit is no number":         {"self/mountinfo": mounts, "7/cgroup": "0::/x\n", "v2/x/memory.max": "\n"},
		"its use cannot be read":       {"self/mountinfo": mounts, "7/cgroup": "0::/x\n", "v2/x/memory.max": "5\n"},
	} {
		t.Run(name, func(t *testing.T) {
			files["meminfo"] = "MemAvailable:    8388608 kB\n"
			if got, _, err := (&checkpoint.Proc{Path: tree(t, files)}).HostFree(id, 7, 0); err == nil {
				t.Errorf("%d bytes are free", got)
			} else {
				t.Log(err)
			}
		})
	}
}

func TestProcessesOfAContainer(t *testing.T) {
	asked := 0
	files := map[string]string{"self/mountinfo": mounts, "v2/c/cgroup.procs": "7\n8\n", "v2/c/below/cgroup.procs": "9\n"}
	for pid := 5; pid < 10; pid++ {
		files[strconv.Itoa(pid)+"/cgroup"] = "0::/c\n"
	}
	p := &checkpoint.Proc{Path: tree(t, files), ContainerOf: func(pid int) (string, bool, error) {
		asked++
		return "c", pid > 6, nil
	}}
	for range 3 {
		pids, err := p.Of("c")
		check(t, err, nil)
		slices.Sort(pids)
		if !slices.Equal(pids, []int{7, 8, 9}) {
			t.Errorf("%v", pids)
		}
	}
	if asked != 5 {
		t.Errorf("asked for %d processes, want once for each", asked)
	}
	check(t, os.RemoveAll(filepath.Join(p.Path, "v2")), nil)
	if pids, err := p.Of("c"); len(pids) != 3 || err != nil {
		t.Errorf("without the group %v, %v", pids, err)
	}
}

// A process that has ended or is hidden for good is not the container's. One that cannot be read for a
// moment may be.
func TestUnreadableProcessIsNotLeftOut(t *testing.T) {
	for name, tt := range map[string]struct{ of, want error }{
		"it ended":            {fmt.Errorf("process 8: %w", fs.ErrNotExist), nil},
		"it ended in a read":  {&fs.PathError{Op: "read", Path: "8/cgroup", Err: syscall.ESRCH}, nil},
		"hidden":              {&fs.PathError{Op: "open", Path: "8/cgroup", Err: syscall.EACCES}, nil},
		"too many open files": {&fs.PathError{Op: "open", Path: "8/cgroup", Err: syscall.EMFILE}, syscall.EMFILE},
		"no memory":           {&fs.PathError{Op: "read", Path: "8/cgroup", Err: syscall.ENOMEM}, syscall.ENOMEM},
	} {
		t.Run(name, func(t *testing.T) {
			p := &checkpoint.Proc{Path: tree(t, map[string]string{"7/stat": "", "8/stat": ""}), ContainerOf: func(pid int) (string, bool, error) {
				if pid == 8 {
					return "", false, tt.of
				}
				return "c", true, nil
			}}
			pids, err := p.Of("c")
			check(t, err, tt.want)
			if err == nil && !slices.Equal(pids, []int{7}) {
				t.Errorf("%v", pids)
			}
		})
	}
}

// Every process of this machine can be read, kernel threads and those of other users among them.
func TestReadsWholeMachine(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sleep", "60")
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	check(t, cmd.Start(), nil)
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	seen := false
	p := &checkpoint.Proc{Path: "/proc", ContainerOf: func(pid int) (string, bool, error) {
		_, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
		seen = seen || pid == cmd.Process.Pid && err == nil
		return "", false, err
	}}
	if _, err := p.Of("c"); err != nil || !seen {
		t.Errorf("%v; the process of another user was read: %v", err, seen)
	}
}

func TestStat(t *testing.T) {
	p := &checkpoint.Proc{Path: "/proc"}
	cmd := exec.CommandContext(t.Context(), "sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	s, err := p.Stat(pid)
	check(t, err, nil)
	if s.Start == 0 || s.Stopped || s.Traced {
		t.Errorf("%+v", s)
	}
	check(t, syscall.Kill(pid, syscall.SIGSTOP), nil)
	for deadline := time.Now().Add(30 * time.Second); !s.Stopped && time.Now().Before(deadline); {
		s, err = p.Stat(pid)
		check(t, err, nil)
	}
	if !s.Stopped {
		t.Error("not stopped")
	}
	check(t, cmd.Process.Kill(), nil)
	for deadline := time.Now().Add(30 * time.Second); err == nil && time.Now().Before(deadline); {
		_, err = p.Stat(pid) // a zombie now
	}
	if !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	_ = cmd.Wait()
}

// A program whose main thread ends (pthread_exit) lives as long as another thread of it: what is on record
// of it stands until then.
func TestProcessWithoutItsFirstThreadLives(t *testing.T) {
	cmd := exec.Command(cudatest.Compile(t, `#include <pthread.h>
#include <unistd.h>
static void *work(void *unused) { char c; read(0, &c, 1); return 0; }
int main(void)
{
	pthread_t thread;
	pthread_create(&thread, 0, work, 0);
	pthread_exit(0);
}
`))
	end, err := cmd.StdinPipe()
	check(t, err, nil)
	check(t, cmd.Start(), nil)
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	pid := cmd.Process.Pid
	p := &checkpoint.Proc{Path: "/proc"}
	await := func(what string, is func(checkpoint.Stat, error) bool) checkpoint.Stat {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
			s, err := p.Stat(pid)
			if is(s, err) {
				return s
			}
			if time.Now().After(deadline) {
				t.Fatalf("it is not %s: %+v, %v", what, s, err)
			}
		}
	}
	before := await("begun", func(_ checkpoint.Stat, err error) bool { return err == nil })
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
		check(t, err, nil)
		if strings.Contains(string(line), ") Z ") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("its first thread goes on: %s", line)
		}
	}
	if s, err := p.Stat(pid); err != nil || s != (checkpoint.Stat{Start: before.Start}) || s.Start == 0 {
		t.Errorf("%+v, %v", s, err)
	}
	check(t, syscall.Kill(pid, syscall.SIGSTOP), nil)
	await("stopped", func(s checkpoint.Stat, err error) bool { return err == nil && s.Stopped })
	check(t, syscall.Kill(pid, syscall.SIGCONT), nil)
	await("continued", func(s checkpoint.Stat, err error) bool { return err == nil && !s.Stopped })
	check(t, end.Close(), nil)
	await("gone", func(_ checkpoint.Stat, err error) bool { return errors.Is(err, fs.ErrNotExist) })
}

// A process has ended once all its threads have. One that cannot be read may go on.
func TestThreadsThatCannotBeRead(t *testing.T) {
	stat := func(state string, threads int) string {
		return fmt.Sprintf("7 (a) b) %s%s %d 0 99 0\n", state, strings.Repeat(" 0", 16), threads)
	}
	unknown := errors.New("not known")
	for name, tt := range map[string]struct {
		files map[string]string
		want  error
	}{
		"it goes on":                     {map[string]string{"7/stat": stat("S", 1), "7/status": ""}, nil},
		"it has one, and that has ended": {map[string]string{"7/stat": stat("Z", 1), "7/task/7/stat": stat("Z", 1)}, fs.ErrNotExist},
		"all have ended": {map[string]string{"7/stat": stat("Z", 2), "7/task/7/stat": stat("Z", 2),
			"7/task/8/stat": stat("X", 2)}, fs.ErrNotExist},
		"the second goes on": {map[string]string{"7/stat": stat("Z", 2), "7/task/7/stat": stat("Z", 2),
			"7/task/8/stat": stat("D", 2), "7/task/8/status": ""}, nil},
		"the second is not seen": {map[string]string{"7/stat": stat("Z", 2), "7/task/7/stat": stat("Z", 2)}, unknown},
		"the second ends while it is read": {map[string]string{"7/stat": stat("Z", 2), "7/task/7/stat": stat("Z", 2),
			"7/task/8/x": ""}, unknown},
		"the second cannot be read": {map[string]string{"7/stat": stat("Z", 2), "7/task/7/stat": stat("Z", 2),
			"7/task/8/stat": "7 (a) S"}, unknown},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := (&checkpoint.Proc{Path: tree(t, tt.files)}).Stat(7)
			switch {
			case errors.Is(tt.want, unknown) && (err == nil || errors.Is(err, fs.ErrNotExist)):
				t.Errorf("%+v, %v; want another error", s, err)
			case !errors.Is(tt.want, unknown) && !errors.Is(err, tt.want), err == nil && s.Start != 99:
				t.Errorf("%+v, %v; want %v", s, err, tt.want)
			}
		})
	}
}
