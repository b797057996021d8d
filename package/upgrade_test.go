package package_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/enforce/checkpoint"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/needtest"
)

const containerID = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// manager is a package manager inside a machine.
type manager struct {
	name    string
	pattern string // of its package in a release
	prepare []string
	install []string // the first and a newer one
	remove  []string
	purge   []string // nil: it has no such thing
	left    string   // what stays without it, as README.md says
}

var managers = []manager{
	{
		name: "dpkg", pattern: "*.deb",
		prepare: []string{"sh", "-c", "mkdir -p /var/lib/dpkg/info /var/lib/dpkg/updates && : >/var/lib/dpkg/status && : >/var/lib/dpkg/available"},
		install: []string{"dpkg", "--force-depends", "--log=/dev/null", "--install"},
		remove:  []string{"dpkg", "--log=/dev/null", "--remove", "laxity"},
		purge:   []string{"dpkg", "--log=/dev/null", "--purge", "laxity"},
	},
	{
		name: "rpm", pattern: "*.rpm",
		prepare: []string{"rpm", "--dbpath=/var/lib/rpm", "--initdb"},
		// Debian's refuses without it, where apt is.
		install: []string{"rpm", "--dbpath=/var/lib/rpm", "--upgrade", "--nodeps", "--force-debian"},
		remove:  []string{"rpm", "--dbpath=/var/lib/rpm", "--erase", "--force-debian", "laxity"},
		left:    "/etc/laxity /var/lib/laxity /etc/default/laxity-*.rpmsave",
	},
}

// TestUpgrade installs an old package under a real systemd, lets a tenant compute on the simulated
// GPU, installs a newer one, and takes it away again.
func TestUpgrade(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the programs; not with -short")
	}
	older, newer := buildPackages(t, "v1.2.3-rc1"), buildPackages(t, "v1.2.3")
	for _, p := range managers {
		t.Run(p.name, func(t *testing.T) {
			need(t, p.name, "Debian and Ubuntu: apt-get install dpkg rpm")
			m := startInstallable(t, p, older, newer)
			before := m.files()
			installed(m, p)
			task := m.track()
			upgraded(m, p, task)
			staysWhileSwapped(m, p)
			removed(m, p, before)
		})
	}
}

func buildPackages(t *testing.T, version string) (out string) {
	t.Helper()
	release(t)
	bin := t.TempDir()
	run(t, nil, "go", "build", "-trimpath", "-ldflags=-s -w -X github.com/prometheus/common/version.Version="+version, "-o", bin+"/",
		"./cmd/laxity", "./cmd/laxity-exporter", "./cmd/laxity-actuator")
	return pack(t, bin, version)
}

// startInstallable starts a machine with a /usr of its own to write to, and both packages.
func startInstallable(t *testing.T, p manager, older, newer string) *machine {
	t.Helper()
	dir := inside(t)
	for name, release := range map[string]string{"older": older, "newer": newer} {
		run(t, nil, "cp", only(t, filepath.Join(release, p.pattern)), filepath.Join(dir, name))
	}
	// The package brings them.
	for _, unit := range shipped {
		if err := os.Remove(filepath.Join(dir, "units", unit)); err != nil {
			t.Fatal(err)
		}
		if unit == "laxity-devices.service" {
			continue // it has no log
		}
		drop := "[Service]\nStandardOutput=append:/laxity/" + strings.TrimSuffix(unit, ".service") + ".out\nStandardError=inherit\n"
		if !mayLowerOOMScore(t) {
			drop += "OOMScoreAdjust=0\n"
		}
		writeFile(t, filepath.Join(dir, "units", unit+".d", "test.conf"), drop)
	}
	// The tenant is the process of a container.
	writeFile(t, filepath.Join(dir, "units/tenant.service.d/container.conf"), "[Service]\nSlice=docker-"+containerID+".slice\n")
	writeFile(t, filepath.Join(dir, "units/engine.service.d/container.conf"), "[Service]\nExecStart=\nExecStart=/laxity/inside engine "+strings.TrimPrefix(dockerHost, "unix://")+" "+containerID+"\n")
	m := startMachine(t, dir)
	m.do("mkdir", "-p", "/over/up", "/over/work")
	if _, err := m.try("mount", "-t", "overlay", "-o", "lowerdir=/usr,upperdir=/over/up,workdir=/over/work", "overlay", "/usr"); err != nil {
		needtest.Namespaces.Skip(t, "no /usr to write to:", err)
	}
	// The machine starts no unit of the real /usr, and finds the package's.
	m.do("mount", "--bind", "/laxity/units", "/usr/lib/systemd/system")
	m.do("rm", "/etc/laxity/webhook-token")
	m.do("rmdir", "/etc/laxity")
	m.do("mkdir", "-p", "/etc/default", "/var/tmp") // which every machine has
	m.do(p.prepare[0], p.prepare[1:]...)
	m.do("systemctl", "start", "gpu", "engine", "tenant")
	return m
}

// files lists what is on the machine's disks, without what package managers know of themselves.
func (m *machine) files() []string {
	m.Helper()
	out := m.do("sh", "-c", "find /over/up /laxity/units /etc /var /run/laxity /sys/fs/bpf -path /var/lib/dpkg -prune -o -path /var/lib/rpm -prune -o -print 2>/dev/null || true")
	var list []string
	for _, path := range strings.Split(out, "\n") {
		// Folders of the real /usr are copied up when something is put into them; an empty one is
		// as if it were not there.
		if strings.HasPrefix(path, "/over/up") && !strings.Contains(path, "laxity") {
			continue
		}
		list = append(list, path)
	}
	slices.Sort(list)
	return list
}

func installed(m *machine, p manager) {
	m.do(p.install[0], append(p.install[1:], "/laxity/older")...)
	if state, _ := m.try("systemctl", "is-active", "laxity-exporter", "laxity-guardian", "laxity-actuator"); strings.Contains(state, "\nactive") || strings.HasPrefix(state, "active") {
		m.Errorf("the installation started something: %s", state)
	}
	options := map[string]string{
		"exporter": "LAXITY_EXPORTER_OPTS=\"--web.listen-address=127.0.0.1:9870 --device=sim:" + gpuSocket + " --docker.host=" + dockerHost + "\"",
		"actuator": "LAXITY_ACTUATOR_OPTS=\"--hold=channels --device=sim:" + gpuSocket + " --docker.host=" + dockerHost + "\"",
		"guardian": "LAXITY_GUARDIAN_OPTS=\"--device=sim:" + gpuSocket + " --docker.host=" + dockerHost + "\"",
	}
	for unit, line := range options { // as an administrator does
		m.write("options-"+unit, line+"\n")
		m.do("cp", "/laxity/options-"+unit, "/etc/default/laxity-"+unit)
	}
	m.do("systemctl", "start", "laxity-exporter", "laxity-actuator")
	m.running()
}

// running waits until all three work.
func (m *machine) running() {
	m.Helper()
	m.until("the exporter is ready", func() bool { return m.ready("http://127.0.0.1:9870/-/ready") })
	m.until("the actuator is ready", func() bool { return m.ready(actuatorURL + "/-/ready") })
	if s := m.state(); !s.GuardianUp || len(s.Lacks) > 0 || s.NoChannels != "" {
		m.Errorf("guardian %v, channels: %s, lacks %v", s.GuardianUp, s.NoChannels, s.Lacks)
	}
}

// track waits until the exporter knows the tenant's task.
func (m *machine) track() (found task.Task) {
	m.Helper()
	m.until("the exporter knows the tenant's task", func() bool {
		var s task.Snapshot
		out, err := m.try("/laxity/inside", "get", "http://127.0.0.1:9870/api/v1/tasks")
		if err != nil || json.Unmarshal([]byte(out), &s) != nil {
			return false
		}
		i := slices.IndexFunc(s.Tasks, func(t task.Task) bool { return t.End == nil && t.ContainerID == containerID })
		if i >= 0 {
			found = s.Tasks[i]
		}
		return i >= 0
	})
	return found
}

// upgraded: with the tenant computing, and a time slice of it changed on record, the newer package
// takes over. The tenant goes on as before all of it.
func upgraded(m *machine, p manager, before task.Task) {
	tenant, token := fmt.Sprint(m.tenant()), m.do("cat", "/etc/laxity/webhook-token")
	units := []string{"laxity-exporter", "laxity-guardian", "laxity-actuator"}
	pids := map[string]int{}
	for _, unit := range units {
		pids[unit] = m.main(unit)
	}
	own := m.do("/laxity/inside", "slice", gpuSocket, tenant)
	m.do("/laxity/inside", "hold", gpuSocket, tenant)
	if now := m.do("/laxity/inside", "slice", gpuSocket, tenant); now == own {
		m.Fatalf("its slice is %s, as before", now)
	}
	m.do(p.install[0], append(p.install[1:], "/laxity/newer")...)
	m.running()
	for _, unit := range units {
		if now := m.main(unit); now == pids[unit] {
			m.Errorf("%s is the old process %d", unit, now)
		}
	}
	if v := m.do("laxity-exporter", "--version"); !strings.Contains(v, "v1.2.3") || strings.Contains(v, "rc1") {
		m.Error(v)
	}
	took := m.until("the slice is put back", func() bool { return m.do("/laxity/inside", "slice", gpuSocket, tenant) == own })
	m.Logf("the slice was put back %v after the newer ones were ready", took)
	if now := fmt.Sprint(m.tenant()); now != tenant {
		m.Errorf("the tenant was %s and is %s", tenant, now)
	}
	if status := m.do("grep", "^State:", "/proc/"+tenant+"/status"); strings.Contains(status, "T (") {
		m.Errorf("the tenant stands still: %s", status)
	}
	if after := m.track(); after.ID != before.ID || !after.Start.Time.Equal(before.Start.Time) || after.Start.Source != before.Start.Source {
		m.Errorf("the task was %+v, and is %+v", before, after)
	}
	if now := m.do("cat", "/etc/laxity/webhook-token"); now != token {
		m.Error("the upgrade changed the token")
	}
	if o := m.do("cat", "/etc/default/laxity-actuator"); !strings.Contains(o, "--hold=channels") {
		m.Errorf("the upgrade changed the options: %s", o)
	}
}

// swappedOut writes the record of a container that is swapped out and finds no room: the tenant's, whose memory was on a
// GPU that is not here. start is that of its process.
func (m *machine) swappedOut(start uint64) {
	m.Helper()
	text, err := json.Marshal(checkpoint.Record{
		Swapped:   enforce.Swapped{ContainerID: containerID, Container: "tenant", Stage: enforce.Suspended, Since: time.Now()},
		Processes: []checkpoint.Process{{PID: m.tenant(), Start: start, Bytes: map[string]uint64{"GPU-gone": 1 << 30}}},
	})
	if err != nil {
		m.Fatal(err)
	}
	m.write("record", string(text))
	m.do("cp", "/laxity/record", swapRecord)
}

const (
	swaps      = "/var/lib/laxity/actuator/swaps"
	swapRecord = swaps + "/" + containerID + ".json"
)

// staysWhileSwapped: while a container is swapped out and cannot come back, the package stays, says so, and goes on trying. A purge
// keeps the record.
func staysWhileSwapped(m *machine, p manager) {
	var start uint64
	stat := strings.Fields(m.do("cat", fmt.Sprintf("/proc/%d/stat", m.tenant())))
	if _, err := fmt.Sscan(stat[21], &start); err != nil { // proc(5): starttime
		m.Fatal(err)
	}
	m.do("mkdir", "-p", swaps)
	m.write("helper", `["/usr/bin/laxity-actuator","checkpoint-helper","--device=sim:`+gpuSocket+`"]`+"\n")
	m.do("cp", "/laxity/helper", swaps+"/helper")
	m.swappedOut(start)
	ways := [][]string{p.remove}
	if p.purge != nil {
		ways = append(ways, p.purge)
	}
	for _, way := range ways {
		_, err := m.try(way[0], way[1:]...)
		if err == nil {
			m.Fatalf("%v goes through, though a container is swapped out", way)
		}
		for _, want := range []string{"container=tenant", "1024 MiB", "not removed", "end a container that holds some", "sudo laxity off"} {
			if !strings.Contains(err.Error(), want) {
				m.Errorf("%v does not say %q: %v", way, want, err)
			}
		}
		m.do("ls", swapRecord, "/usr/bin/laxity")
		m.until("the guardian watches again", func() bool { _, err := m.try("systemctl", "is-active", "laxity-guardian"); return err == nil })
		m.do("systemctl", "is-active", "laxity-exporter")
	}
	// Its process ends, and another one has its number.
	m.swappedOut(start + 1)
}

// removed: what ran is stopped, the tenant goes on, and a purge leaves nothing.
func removed(m *machine, p manager, before []string) {
	tenant := m.tenant()
	m.do(p.remove[0], p.remove[1:]...)
	for _, unit := range []string{"laxity-exporter", "laxity-guardian", "laxity-actuator"} {
		if out, err := m.try("systemctl", "is-active", unit); err == nil {
			m.Errorf("%s is %s", unit, out)
		}
	}
	if m.tenant() != tenant {
		m.Error("the tenant ended")
	}
	if p.purge != nil {
		if _, err := m.try("ls", "/var/lib/laxity/exporter"); err != nil {
			m.Error("the state is gone before the purge:", err)
		}
		if _, err := m.try("ls", swapRecord); err == nil {
			m.Error("the container is on record though its process has ended")
		}
		keptByPurge(m)
		m.do(p.purge[0], p.purge[1:]...)
	} else {
		m.do("sh", "-c", "rm -rf /run/laxity /sys/fs/bpf/laxity-* "+p.left)
	}
	var left []string
	defer func() {
		for _, path := range left {
			m.Errorf("%s is left", path)
		}
	}()
	m.until("nothing is left", func() bool { // systemd removes the temporary folders of a service after its end
		left = slices.DeleteFunc(m.files(), func(path string) bool { return slices.Contains(before, path) })
		return len(left) == 0
	})
}

// keptByPurge runs the script of a purge with a record that a removal by force has left: the record stays.
func keptByPurge(m *machine) {
	m.do("cp", "/laxity/record", swapRecord)
	out, err := m.try("sh", "-c", "/var/lib/dpkg/info/laxity.postrm purge 2>&1")
	if err != nil || !strings.Contains(out, "/var/lib/laxity stays") || !strings.Contains(out, swapRecord) {
		m.Errorf("a purge with a record: %v, %s", err, out)
	}
	m.do("rm", swapRecord)
}
