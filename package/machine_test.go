package package_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laxity/laxity/internal/needtest"
)

// patience is how long a test waits for an event before it gives up. No test passes by
// waiting so long.
const patience = 60 * time.Second

// boot makes a root of this machine's own /usr, in namespaces of its own, and becomes
// systemd there. $1 is an empty folder, $2 what is /laxity there, $3 its control group.
//
// Of the units of /usr none is started: they would change the machine. NVIDIA's driver seems
// to be loaded: its name is in /proc/devices, and its device files are there. Nobody is behind
// them, so who may open one gets ENXIO.
const boot = `set -eu
echo $$ >"$3/cgroup.procs"
exec unshare --pid --fork --kill-child=KILL --mount --propagation private --cgroup --uts --ipc --net sh -eu -c '
mount -t tmpfs -o mode=755 root "$1"
cd "$1"
mkdir -p usr proc sys dev run tmp var/lib etc/systemd etc/laxity root home old laxity hostproc
for l in bin sbin lib lib64; do ln -s usr/$l $l; done
ln -s /run var/run
mount --bind /usr usr
mount -o remount,bind,ro usr
mount --bind "$2" laxity
# Whoever looks into /laxity/proc finds itself in the PID namespace of this machine.
mkdir -p laxity/proc/self/ns
mount --bind /proc hostproc
ln -sf /hostproc/$3/ns/pid laxity/proc/self/ns/pid
mount -t proc proc proc
mount -t sysfs sys sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t bpf -o mode=700 bpf sys/fs/bpf
mount -t tmpfs -o mode=755 dev dev
mkdir dev/pts dev/shm dev/mqueue dev/hugepages
ln -s pts/ptmx dev/ptmx
mknod -m 666 dev/null c 1 3
mknod -m 666 dev/zero c 1 5
mknod -m 666 dev/full c 1 7
mknod -m 666 dev/random c 1 8
mknod -m 666 dev/urandom c 1 9
mknod -m 666 dev/tty c 5 0
mknod -m 666 dev/nvidiactl c 195 255
mknod -m 666 dev/nvidia0 c 195 0
mknod dev/fuse c 10 229
{ echo "Character devices:"; echo "195 nvidia"; echo "195 nvidiactl"; sed 1d proc/devices; } >etc/devices
mount --bind etc/devices proc/devices
mount -t tmpfs -o mode=755 run run
mount -t tmpfs -o mode=1777 tmp tmp
cp -L /etc/ld.so.cache etc/
printf "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n" >etc/passwd
printf "root:x:0:\nnogroup:x:65534:\n" >etc/group
echo 0123456789abcdef0123456789abcdef >etc/machine-id
echo 0123456789abcdef0123456789abcdef >etc/laxity/webhook-token
pivot_root . old
umount -l old
exec env -i container=laxity SYSTEMD_UNIT_PATH=/run/systemd/system:/laxity/units PATH=/usr/bin:/usr/sbin \
	/usr/lib/systemd/systemd --unit=test.target --log-target=console --log-level=notice --show-status=no
' sh "$1" "$2" $$
`

// machine is a systemd in namespaces of its own.
type machine struct {
	*testing.T
	dir   string // /laxity there
	pid   int    // systemd's, here
	group string
	log   string // a file that systemd writes
	cmd   *exec.Cmd
}

// startMachine starts systemd with units and programs in dir, or skips the test with the
// reason.
func startMachine(t *testing.T, dir string) *machine {
	t.Helper()
	if os.Geteuid() != 0 {
		needtest.Root.Skip(t, "a systemd of one's own needs root")
	}
	for _, program := range []string{"/usr/lib/systemd/systemd", "unshare", "nsenter", "pivot_root", "systemctl"} {
		need(t, program, "Debian and Ubuntu: apt-get install systemd util-linux")
	}
	if link, err := os.Readlink("/lib"); err != nil || link != "usr/lib" {
		needtest.Systemd.Skip(t, "the programs of this machine are not all below /usr")
	}
	m := &machine{T: t, dir: dir, group: controlGroup(t), log: filepath.Join(t.TempDir(), "log")}
	m.cmd = exec.Command("sh", "-c", boot, "sh", t.TempDir(), dir, m.group)
	log, err := os.Create(m.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	m.cmd.Stdout, m.cmd.Stderr = log, log
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.end)
	failed := make(chan struct{})
	go func() { _ = m.cmd.Wait(); close(failed) }()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		select {
		case <-failed:
			needtest.Systemd.Skipf(t, "no systemd can be had here: %s", m.logged())
		default:
		}
		if m.pid = child(m.cmd.Process.Pid); m.pid != 0 {
			if out, err := m.try("systemctl", "is-system-running"); strings.TrimSpace(out) == "running" {
				return m
			} else if time.Now().After(deadline) {
				t.Fatalf("systemd does not come up: %s %v\n%s", out, err, m.logged())
			}
		}
	}
}

// controlGroup makes one of version 2, which is removed when the test ends.
func controlGroup(t *testing.T) string {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		if len(f) < 3 || f[2] != "cgroup2" {
			continue
		}
		group := filepath.Join(f[1], "laxity-test-"+strconv.Itoa(os.Getpid()))
		if err := os.Mkdir(group, 0o755); err != nil {
			needtest.Cgroup.Skipf(t, "systemd needs a control group of its own: %v", err)
		}
		return group
	}
	needtest.Cgroup.Skip(t, "this machine has no control groups of version 2 mounted")
	return ""
}

// logged is what systemd has written so far.
func (m *machine) logged() string {
	text, _ := os.ReadFile(m.log) // of a test that has failed
	return string(text)
}

// child is the first child of a process, 0 for none.
func child(pid int) int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid)) // it may have ended
	first, _, _ := strings.Cut(string(text), " ")
	n, _ := strconv.Atoi(first)
	return n
}

// end kills all that runs there, and takes the control groups away.
func (m *machine) end() {
	if m.Failed() {
		m.Logf("systemd's log:\n%s", m.logged())
	}
	if m.pid != 0 {
		_ = syscall.Kill(m.pid, syscall.SIGKILL) // with the first process ends its namespace
	}
	_ = m.cmd.Process.Kill()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if removeGroups(m.group) == nil {
			return
		}
	}
	m.Errorf("the control group %s is left", m.group)
}

func removeGroups(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil //nolint:nilerr // it is gone
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeGroups(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return os.Remove(dir)
}

// try runs a program there, outside of all units.
func (m *machine) try(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	args = append([]string{"--target", strconv.Itoa(m.pid), "--mount", "--pid", "--net", "--uts", "--ipc", "--cgroup", "--", name}, args...)
	cmd := exec.CommandContext(ctx, "nsenter", args...)
	cmd.Env = []string{"PATH=/usr/bin:/usr/sbin", "HOME=/root"}
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, said.String())
	}
	return out.String(), err
}

// do is try that must succeed.
func (m *machine) do(name string, args ...string) string {
	m.Helper()
	out, err := m.try(name, args...)
	if err != nil {
		m.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, m.output())
	}
	return strings.TrimSpace(out)
}

// output is what the units wrote.
func (m *machine) output() string {
	var all strings.Builder
	failed, _ := m.try("systemctl", "list-units", "--all", "--no-pager", "laxity-*") // it is only told
	all.WriteString(failed)
	files, _ := filepath.Glob(filepath.Join(m.dir, "*.out")) // the pattern is well-formed
	for _, file := range files {
		text, _ := os.ReadFile(file)
		fmt.Fprintf(&all, "%s:\n%s\n", filepath.Base(file), text)
	}
	return all.String()
}

// until asks again until the answer is true.
func (m *machine) until(what string, ok func() bool) time.Duration {
	m.Helper()
	for began := time.Now(); time.Since(began) < patience; time.Sleep(5 * time.Millisecond) {
		if ok() {
			return time.Since(began)
		}
	}
	m.Fatalf("in vain until %s\n%s", what, m.output())
	return 0
}

// write puts a file below the machine's folder.
func (m *machine) write(name, text string) { writeFile(m.T, filepath.Join(m.dir, name), text) }

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}
