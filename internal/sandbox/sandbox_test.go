package sandbox

import (
	"io/fs"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/internal/needtest"
)

const enough = 1<<unix.CAP_SYS_PTRACE | 1<<unix.CAP_DAC_READ_SEARCH | 1<<unix.CAP_KILL | 1<<unix.CAP_BPF | 1<<unix.CAP_PERFMON

func TestJudge(t *testing.T) {
	type want struct{ what, means, fix string } // a part of each
	refused := func(names ...string) map[string]error {
		all := map[string]error{}
		for _, n := range names {
			all[n] = unix.EPERM
		}
		return all
	}
	for name, c := range map[string]struct {
		needs Needs
		tried tried
		want  []want
	}{
		"all is there": {Actuator("/run/laxity"), tried{caps: enough, driver: true, devices: map[string]error{"/dev/nvidiactl": nil}}, nil},
		"a unit that refuses ptrace": {Actuator(), tried{place: inUnit, caps: enough, calls: refused("ptrace")}, []want{
			{"ptrace is refused", "no allocation is refused", "SystemCallFilter=ptrace in laxity-actuator.service"}}},
		"the guardian traces nobody": {Guardian(), tried{place: inUnit, caps: enough, calls: refused("ptrace", "perf_event_open")}, nil},
		"a unit that refuses pidfd_getfd": {Guardian(), tried{place: inUnit, caps: enough, calls: refused("pidfd_getfd")}, []want{
			{"pidfd_getfd is refused", "time slices cannot be set", "SystemCallFilter=pidfd_getfd in laxity-guardian.service"}}},
		"a container without a capability": { // its profile refuses the call for that
			Guardian(), tried{place: inContainer, caps: enough &^ (1 << unix.CAP_SYS_PTRACE), calls: refused("pidfd_getfd")}, []want{
				{"CAP_SYS_PTRACE", "time slices", "--cap-add SYS_PTRACE"}}},
		"a container's own profile": {Actuator(), tried{place: inContainer, caps: enough, calls: map[string]error{"pidfd_getfd": unix.ENOSYS}}, []want{
			{"pidfd_getfd is refused", "", "seccomp profile"}}},
		"an old kernel": {Actuator(), tried{place: inUnit, caps: enough, calls: map[string]error{"pidfd_getfd": unix.ENOSYS}}, []want{
			{"pidfd_getfd", "", "newer kernel"}}},
		"SYS_ADMIN for BPF and PERFMON": {Actuator(), tried{caps: enough&^(1<<unix.CAP_BPF|1<<unix.CAP_PERFMON) | 1<<unix.CAP_SYS_ADMIN}, nil},
		"no rights at all":              {Guardian(), tried{caps: 0, calls: refused("bpf")}, []want{{"SYS_PTRACE", "", "as root"}, {"DAC_READ", "", ""}, {"KILL", "", ""}, {"BPF", "", ""}}},
		"hidden devices": {Actuator(), tried{place: inUnit, caps: enough, driver: true, devices: map[string]error{"/dev/nvidiactl": fs.ErrNotExist, "/dev/nvidia-uvm": unix.EPERM}}, []want{
			{"/dev/nvidia-uvm", "", "DeviceAllow=char-nvidia*"}, {"/dev/nvidiactl", "", "PrivateDevices=no"}}},
		"devices in a container":          {Actuator(), tried{place: inContainer, caps: enough, driver: true, devices: map[string]error{"/dev/nvidiactl": fs.ErrNotExist}}, []want{{"nvidiactl", "", "runtime: nvidia"}}},
		"a device that answers otherwise": {Actuator(), tried{caps: enough, driver: true, devices: map[string]error{"/dev/nvidiactl": unix.ENXIO}}, nil},
		"no driver":                       {Actuator(), tried{caps: enough, devices: map[string]error{"/dev/nvidiactl": fs.ErrNotExist}}, nil},
		"a BPF file system to read only":  {Guardian(), tried{place: inUnit, caps: enough, bpf: unix.EROFS}, []want{{"/sys/fs/bpf", "left stopped", "ReadWritePaths=/sys/fs/bpf"}}},
		"a folder that cannot be written": {Actuator("/run/laxity"), tried{place: inContainer, caps: enough, folders: map[string]error{"/run/laxity": unix.EROFS}}, []want{{"/run/laxity", "on record", "writable"}}},
	} {
		t.Run(name, func(t *testing.T) {
			got := judge(c.needs, c.tried)
			if len(got) != len(c.want) {
				t.Fatalf("%v, want %v", got, c.want)
			}
			for i, w := range c.want {
				l := got[i]
				if !strings.Contains(l.What, w.what) || !strings.Contains(l.Means, w.means) || !strings.Contains(l.Fix, w.fix) || l.Of != c.needs.Of {
					t.Errorf("%+v, want %+v", l, w)
				}
			}
		})
	}
}

// Root without a sandbox is refused no call.
func TestCheckOutsideOfASandbox(t *testing.T) {
	if os.Geteuid() != 0 {
		needtest.Root.Skip(t, "needs root")
	}
	if text, err := os.ReadFile("/proc/self/status"); err != nil || strings.Contains(string(text), "Seccomp:\t2") {
		t.Skipf("this process has a system call filter (%v)", err)
	}
	for _, l := range Check(Actuator(t.TempDir())) {
		if !strings.Contains(l.What, "/sys/fs/bpf") { // it need not be mounted here
			t.Error(l)
		}
	}
	for _, dir := range []string{t.TempDir() + "/made/later", "/proc/1"} {
		err := writable(dir)
		if (err != nil) != (dir == "/proc/1") {
			t.Errorf("%s: %v", dir, err)
		}
	}
}
