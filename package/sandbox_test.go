package package_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/exporter/device/sim/cuda"
	"github.com/laxity/laxity/internal/needtest"
	"github.com/laxity/laxity/internal/sandbox"
	"github.com/laxity/laxity/internal/workload"
)

const (
	gpuSocket  = "/run/gpu.sock"
	dockerHost = "unix:///run/engine.sock"
)

// TestUnits runs the units in their sandboxes, under a real systemd and with a simulated GPU.
func TestUnits(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the programs; not with -short")
	}
	m := startMachine(t, inside(t))
	m.do("systemctl", "start", "gpu", "engine", "tenant")
	for _, step := range []struct {
		name string
		test func(*machine)
	}{
		{"what each sandbox lets through", sandboxes},
		{"before Linux 6.10", oneByOne},
		{"the socket of a user's Podman", rootless},
		{"no right is there for nothing", needed},
		{"a stop lets the checkpoint helper finish its step", helpers},
		{"exporter, guardian and actuator run", daemons},
		{"the guardian outlives the actuator's control group", killed},
		{"a unit that is too tight says so", tight},
	} {
		if !t.Run(step.name, func(t *testing.T) {
			c := *m
			c.T = t
			step.test(&c)
		}) {
			return // the next one begins where this one ended
		}
	}
}

// inside makes the folder with the programs and the units.
func inside(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		needtest.Root.Skip(t, "a systemd of one's own needs root")
	}
	need(t, "gcc", "it compiles the simulated GPU's library and a program that computes on it")
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	run(t, nil, "go", "build", "-o", dir+"/", "./cmd/laxity-exporter", "./cmd/laxity-actuator", "./package/inside")
	lib, err := cuda.Build("")
	if err != nil {
		t.Fatal(err)
	}
	program, err := workload.Build("")
	if err != nil {
		t.Fatal(err)
	}
	run(t, nil, "cp", filepath.Join(lib, "libcuda.so.1"), program, dir)
	units := filepath.Join(dir, "units")
	for _, target := range []string{"basic", "sysinit", "multi-user", "shutdown", "network", "sockets", "paths", "timers", "slices"} {
		writeFile(t, filepath.Join(units, target+".target"), "[Unit]\nDescription=empty\n")
	}
	writeFile(t, filepath.Join(units, "test.target"), "[Unit]\nDefaultDependencies=no\n")
	for name, does := range map[string]string{
		"gpu":    "ExecStart=/laxity/inside gpu " + gpuSocket,
		"engine": "ExecStart=/laxity/inside engine " + strings.TrimPrefix(dockerHost, "unix://"),
		// As a container's process: of another user, without rights.
		"tenant": "ExecStartPre=/usr/bin/timeout 60 /usr/bin/sh -c 'until [ -S " + gpuSocket + " ]; do sleep 0.01; done'\n" +
			"ExecStart=/laxity/matmul --n 256 --hold 1000\nUser=nobody\nNoNewPrivileges=yes\nEnvironment=LAXITY_SIM_SOCKET=" + gpuSocket + " LD_LIBRARY_PATH=/laxity",
	} {
		writeFile(t, filepath.Join(units, name+".service"), "[Service]\n"+does+"\nStandardOutput=append:/laxity/"+name+".out\nStandardError=inherit\n")
	}
	shipped, err := filepath.Glob("systemd/*.service")
	if err != nil || len(shipped) == 0 {
		t.Fatal(shipped, err)
	}
	for _, file := range shipped {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(units, filepath.Base(file)), strings.ReplaceAll(string(text), "=/usr/bin/laxity", "=/laxity/laxity"))
	}
	// What this machine lacks, and where it says what.
	for _, name := range []string{"exporter", "actuator", "guardian"} {
		drop := "[Service]\nStandardOutput=append:/laxity/" + name + ".out\nStandardError=inherit\n"
		if !mayLowerOOMScore(t) {
			drop += "OOMScoreAdjust=0\n"
		}
		drop += map[string]string{
			"exporter": "Environment=\"LAXITY_EXPORTER_OPTS=--web.listen-address=127.0.0.1:9870 --device=sim:" + gpuSocket + " --docker.host=" + dockerHost + "\"\n",
			"actuator": "Environment=\"LAXITY_ACTUATOR_OPTS=--hold=channels --device=sim:" + gpuSocket + " --docker.host=" + dockerHost + "\"\n",
			"guardian": "Environment=\"LAXITY_GUARDIAN_OPTS=--device=sim:" + gpuSocket + " --docker.host=" + dockerHost + "\"\n",
		}[name]
		writeFile(t, filepath.Join(units, "laxity-"+name+".service.d", "test.conf"), drop)
	}
	return dir
}

// mayLowerOOMScore: not everywhere may root do that.
func mayLowerOOMScore(t *testing.T) bool {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	const sysResource = 24 // include/uapi/linux/capability.h
	var caps uint64
	if _, err := fmt.Sscanf(string(status[strings.Index(string(status), "CapEff:"):]), "CapEff: %x", &caps); err != nil {
		t.Fatal(err)
	}
	return caps&(1<<sysResource) != 0
}

var (
	execs    = regexp.MustCompile(`(?m)^Exec.*\n`)
	noKeys   = regexp.MustCompile(`(?m)^(Restart|RestartSec|Type)=.*\n`)
	noOrders = regexp.MustCompile(`(?m)^(Requires|Wants|After|Before)=.*\n`)
)

// probed is what a program found in the sandbox of a unit.
type probed struct {
	Said  map[string]string
	Lacks []sandbox.Lack
}

// standIn writes a unit with the settings of one of ours, and more lines, but without the program.
func (m *machine) standIn(name, unit string, more ...string) {
	m.Helper()
	text, err := os.ReadFile(filepath.Join(m.dir, "units", "laxity-"+unit+".service"))
	if err != nil {
		m.Fatal(err)
	}
	s := execs.ReplaceAllString(noOrders.ReplaceAllString(noKeys.ReplaceAllString(string(text), ""), ""), "")
	s = strings.Replace(s, "[Install]", strings.Join(more, "\n")+"\n[Install]", 1)
	if !mayLowerOOMScore(m.T) {
		s = regexp.MustCompile(`(?m)^OOMScoreAdjust=.*\n`).ReplaceAllString(s, "")
	}
	m.write("units/"+name+".service", s)
	m.do("systemctl", "daemon-reload")
}

// probe runs the probing program in the sandbox of the unit, with more lines in it.
func (m *machine) probe(unit string, more ...string) (p probed) {
	m.Helper()
	if m.old() && unit != "guardian" {
		old, err := os.ReadFile("systemd/before-linux-6.10.conf")
		if err != nil {
			m.Fatal(err)
		}
		more = append([]string{lines(string(old))}, more...)
	}
	m.standIn("probe", unit, append([]string{fmt.Sprintf("Type=oneshot\nExecStart=/laxity/inside %s %d /laxity/proc\nStandardOutput=file:/laxity/probe.out\nStandardError=inherit",
		unit, m.tenant())}, more...)...)
	_ = os.Remove(filepath.Join(m.dir, "probe.out"))
	m.do("systemctl", "start", "probe")
	out, err := os.ReadFile(filepath.Join(m.dir, "probe.out"))
	if err == nil {
		err = json.Unmarshal(out, &p)
	}
	if err != nil {
		m.Fatalf("%v\n%s", err, out)
	}
	return p
}

// pid of a unit's main process, there; 0 for none.
func (m *machine) main(unit string) (pid int) {
	m.Helper()
	if _, err := fmt.Sscan(m.do("systemctl", "show", "--property=MainPID", "--value", unit), &pid); err != nil {
		m.Fatal(err)
	}
	return pid
}

func (m *machine) tenant() int { return m.main("tenant") }

// allowed and refused are what the probing program tries.
var (
	allowed = map[string][]string{
		"exporter": {"probes", "open /dev/nvidiactl", "descriptors", "its files"},
		"actuator": {"probes", "open /dev/nvidiactl", "descriptors", "duplicate", "signal", "signal by pidfd", "record", "trace", "trace check"},
		"guardian": {"open /dev/nvidiactl", "descriptors", "duplicate", "signal", "signal by pidfd", "record"},
	}
	oneProbe = "probes one by one"
	refused  = []string{"open another device", "make a device", "mount", "change the kernel", "write to /usr", "load a module", "make code"}
)

func sandboxes(m *machine) {
	m.until("the tenant computes", func() bool { return m.tenant() != 0 })
	for _, unit := range []string{"exporter", "actuator", "guardian"} { // the guardian reads the actuator's record
		p := m.probe(unit)
		for _, name := range allowed[unit] {
			if p.Said[name] != "ok" {
				m.Errorf("%s: %s: %s", unit, name, p.Said[name])
			}
		}
		for _, name := range refused {
			if got := p.Said[name]; got == "ok" || got == "" {
				m.Errorf("%s: %s is let through (%q)", unit, name, got)
			}
		}
		if len(p.Lacks) > 0 {
			m.Errorf("%s lacks %v", unit, p.Lacks)
		}
	}
}

// lines of a drop-in for a service.
func lines(text string) string {
	return regexp.MustCompile(`(?m)^(#.*|\[Service\])\n`).ReplaceAllString(text, "")
}

// old says whether this kernel needs the drop-in for older ones.
func (m *machine) old() bool {
	m.Helper()
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		m.Fatal(err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor); err != nil {
		m.Fatal(err)
	}
	return major < 6 || major == 6 && minor < 10
}

// oneByOne: with the drop-in for older kernels probes can be set as those do, and nothing
// else is let through.
func oneByOne(m *machine) {
	text, err := os.ReadFile("systemd/before-linux-6.10.conf")
	if err != nil {
		m.Fatal(err)
	}
	dropIn := lines(string(text))
	for _, unit := range []string{"exporter", "actuator"} {
		p := m.probe(unit, dropIn)
		for _, name := range append([]string{oneProbe}, allowed[unit]...) {
			if p.Said[name] != "ok" {
				m.Errorf("%s: %s: %s", unit, name, p.Said[name])
			}
		}
		for _, name := range refused {
			if got := p.Said[name]; got == "ok" || got == "" {
				m.Errorf("%s: %s is let through (%q)", unit, name, got)
			}
		}
		if got := m.probe(unit, dropIn, "SystemCallFilter=~perf_event_open").Said[oneProbe]; got == "ok" || got == "" {
			m.Errorf("%s sets one probe without perf_event_open (%q)", unit, got)
		}
	}
}

// rootless: with the example's drop-in each program reaches the socket of a user who is not root.
func rootless(m *machine) {
	const socket = "/run/user/65534/podman/podman.sock"
	m.do("install", "-d", "-m", "700", "-o", "nobody", "/run/user/65534", "/run/user/65534/podman")
	m.write("units/users-engine.service", "[Service]\nExecStart=/laxity/inside engine "+socket+"\nUser=nobody\nUMask=0117\n") // 0660, as podman.socket has it
	m.do("systemctl", "daemon-reload")
	m.do("systemctl", "start", "users-engine")
	m.until("the user's engine listens", func() bool { _, err := m.try("test", "-S", socket); return err == nil })
	text, err := os.ReadFile("examples/rootless-podman.conf")
	if err != nil {
		m.Fatal(err)
	}
	for _, unit := range []string{"exporter", "actuator", "guardian"} {
		asks := "Environment=USERS_SOCKET=" + socket
		if got := m.probe(unit, asks).Said["a user's socket"]; got == "ok" || got == "" {
			m.Errorf("%s needs no drop-in (%q)", unit, got)
		}
		if p := m.probe(unit, asks, lines(string(text))); p.Said["a user's socket"] != "ok" {
			m.Errorf("%s: %s", unit, p.Said["a user's socket"])
		}
	}
}

// needed: each capability and system call of a unit is there for something that does not
// work without.
func needed(m *machine) {
	for unit, rights := range map[string][]string{
		"exporter": {"CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH", "CAP_BPF", "CAP_PERFMON", "bpf"},
		"actuator": {"CAP_KILL", "CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH", "CAP_BPF", "CAP_PERFMON", "bpf", "pidfd_open", "pidfd_getfd", "pidfd_send_signal", "ptrace", "process_vm_writev"},
		"guardian": {"CAP_KILL", "CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH", "CAP_BPF", "bpf", "pidfd_open", "pidfd_getfd", "pidfd_send_signal"},
	} {
		text, err := os.ReadFile(filepath.Join(m.dir, "units", "laxity-"+unit+".service"))
		if err != nil {
			m.Fatal(err)
		}
		given := strings.Fields(strings.TrimPrefix(regexp.MustCompile(`(?m)^CapabilityBoundingSet=.*$`).FindString(string(text)), "CapabilityBoundingSet="))
		for _, c := range given {
			if !slices.Contains(rights, c) {
				m.Errorf("%s has %s, and nothing shows what for", unit, c)
			}
		}
		for _, right := range rights {
			without := "SystemCallFilter=~" + right
			if strings.HasPrefix(right, "CAP_") {
				without = "CapabilityBoundingSet=~" + right
			}
			if unit == "guardian" {
				m.probe("actuator") // for its record
			}
			p := m.probe(unit, without)
			if unit == "guardian" && right == "CAP_BPF" {
				continue // since Linux 6.0 who may open the file may open the map
			}
			if m.old() && (right == "CAP_BPF" || right == "CAP_PERFMON") {
				continue // CAP_SYS_ADMIN does as well
			}
			if !slices.ContainsFunc(allowed[unit], func(name string) bool { return p.Said[name] != "ok" && p.Said[name] != "" }) {
				m.Errorf("%s does all without %s", unit, right)
			}
			if unit != "exporter" && len(p.Lacks) == 0 {
				m.Errorf("%s without %s says that it lacks nothing", unit, right)
			}
		}
	}
}

// helpers: a unit is stopped, and killed since it does not end in time, while its checkpoint helper is in a step. The
// step goes on to its end.
func helpers(m *machine) {
	const step = "/var/lib/laxity/actuator/step"
	for _, unit := range []string{"actuator", "guardian"} {
		if limit := m.do("systemctl", "show", "--property=TimeoutStopUSec", "--value", "laxity-"+unit); limit != "10min" {
			m.Errorf("%s has %s to end: a swap may take minutes", unit, limit)
		}
		m.standIn("helped", unit, "ExecStart=/laxity/inside swaps "+step, "TimeoutStopSec=1s")
		m.do("systemctl", "start", "helped")
		m.until("the step has begun", func() bool { text, _ := m.try("cat", step); return text == "begun" })
		began := time.Now()
		m.do("systemctl", "stop", "helped")
		if text, took := m.do("cat", step), time.Since(began); text != "begun" {
			m.Logf("%s: the step ended before the stop, which took %v: this machine is slow", unit, took)
		}
		m.until("the step is done", func() bool { return m.do("cat", step) == "done" })
		m.do("rm", step)
	}
}

func (m *machine) ready(url string) bool {
	_, err := m.try("/laxity/inside", "get", url)
	return err == nil
}

const actuatorURL = "http://127.0.0.1:9871"

func (m *machine) state() (s state.State) {
	m.Helper()
	if err := json.Unmarshal([]byte(m.do("/laxity/inside", "get", actuatorURL+"/api/v1/state")), &s); err != nil {
		m.Fatal(err)
	}
	return s
}

func daemons(m *machine) {
	m.do("systemctl", "start", "laxity-exporter", "laxity-actuator") // which requires the guardian
	m.until("the exporter is ready", func() bool { return m.ready("http://127.0.0.1:9870/-/ready") })
	m.until("the actuator is ready", func() bool { return m.ready(actuatorURL + "/-/ready") })
	if s := m.state(); !s.GuardianUp || len(s.Lacks) > 0 || s.NoChannels != "" || s.Hold != config.HoldChannels {
		m.Errorf("guardian %v, holds by %s (%s), lacks %v", s.GuardianUp, s.Hold, s.NoChannels, s.Lacks)
	}
	for _, folder := range []string{"exporter", "actuator"} { // records name every container
		if mode := m.do("stat", "-c", "%a", "/var/lib/laxity/"+folder); mode != "700" {
			m.Errorf("the state of the %s is open to others: %s", folder, mode)
		}
	}
}

// killed: everything in the actuator's control group ends at once. The guardian goes on, and
// puts right what the actuator had changed on the GPU.
func killed(m *machine) {
	tenant, guardian := fmt.Sprint(m.tenant()), m.main("laxity-guardian")
	// Else the next actuator could be the one that puts it right.
	m.write("units/laxity-actuator.service.d/killed.conf", "[Service]\nRestart=no\n")
	m.do("systemctl", "daemon-reload")
	own := m.do("/laxity/inside", "slice", gpuSocket, tenant)
	m.do("/laxity/inside", "hold", gpuSocket, tenant)
	if now := m.do("/laxity/inside", "slice", gpuSocket, tenant); now == own {
		m.Fatalf("its slice is %s, as before", now)
	}
	m.do("systemctl", "kill", "--kill-whom=all", "--signal=KILL", "laxity-actuator")
	took := m.until("the slice is put back", func() bool { return m.do("/laxity/inside", "slice", gpuSocket, tenant) == own })
	m.Logf("the slice was put back within %v", took)
	m.until("the actuator is dead", func() bool { return m.main("laxity-actuator") == 0 })
	if now := m.main("laxity-guardian"); now != guardian {
		m.Errorf("the guardian was %d and is %d", guardian, now)
	}
	m.until("nothing is on record", func() bool { out, err := m.try("ls", "/run/laxity/channels"); return err == nil && out == "" })
}

// tight: the units of before, or of an administrator, refuse what is needed. The programs say
// so, and what to write.
func tight(m *machine) {
	m.do("systemctl", "stop", "laxity-actuator", "laxity-guardian")
	if err := os.Remove(filepath.Join(m.dir, "units/laxity-actuator.service.d/killed.conf")); err != nil {
		m.Fatal(err)
	}
	m.write("units/laxity-actuator.service.d/tight.conf", "[Service]\nSystemCallFilter=~ptrace pidfd_getfd\nDeviceAllow=\n")
	m.write("units/laxity-guardian.service.d/tight.conf", "[Service]\nSystemCallFilter=~pidfd_getfd\nProtectKernelTunables=yes\n")
	m.do("systemctl", "daemon-reload")
	m.do("systemctl", "start", "laxity-actuator")
	m.until("the actuator is ready", func() bool { return m.ready(actuatorURL + "/-/ready") })
	var s state.State
	m.until("it tells of the guardian, too", func() bool {
		s = m.state()
		return slices.ContainsFunc(s.Lacks, func(l state.Lack) bool { return l.Of == "guardian" })
	})
	for _, want := range []struct{ of, what, fix string }{
		{"actuator", "ptrace is refused", "SystemCallFilter=ptrace in laxity-actuator.service"},
		{"actuator", "pidfd_getfd is refused", "SystemCallFilter=pidfd_getfd in laxity-actuator.service"},
		{"actuator", "/dev/nvidiactl cannot be opened", "PrivateDevices=no"},
		{"guardian", "pidfd_getfd is refused", "SystemCallFilter=pidfd_getfd in laxity-guardian.service"},
		{"guardian", "cannot write to /sys/fs/bpf", "no ProtectKernelTunables="},
	} {
		if !slices.ContainsFunc(s.Lacks, func(l state.Lack) bool {
			return l.Of == want.of && strings.Contains(l.What, want.what) && strings.Contains(l.Fix, want.fix)
		}) {
			m.Errorf("nobody says %v, but: %v", want, s.Lacks)
		}
	}
}
