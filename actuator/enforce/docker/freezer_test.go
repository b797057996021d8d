package docker

import (
	"os"
	"path/filepath"
	"testing"
)

func TestFreezerFile(t *testing.T) {
	const v1Mounts = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n" +
		"32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n" +
		"37 31 0:34 / /sys/fs/cgroup/freezer rw shared:5 - cgroup cgroup rw,freezer\n" +
		"41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
	const v2Mounts = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
	for name, c := range map[string]struct {
		cgroup, mounts, want string
		v2, fails            bool
	}{
		"v1":                 {"9:cpu,cpuacct:/docker/x\n6:freezer:/docker/x\n0::/\n", v1Mounts, "/sys/fs/cgroup/freezer/docker/x/freezer.state", false, false},
		"v2 systemd":         {"0::/system.slice/docker-x.scope\n", v2Mounts, "/sys/fs/cgroup/system.slice/docker-x.scope/cgroup.events", true, false},
		"private namespace":  {"0::/../x\n", "30 23 0:26 /../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "", true, true},
		"other part mounted": {"0::/b/x\n", "30 23 0:26 /a /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "", true, true},
		"v2, part mounted":   {"0::/a/b/x\n", "30 23 0:26 /a /mnt/my\\040cg rw - cgroup2 cgroup2 rw\n", "/mnt/my cg/b/x/cgroup.events", true, false},
		"no mount":           {"0::/x\n", "", "", false, true},
		"no cgroup":          {"", v2Mounts, "", false, true},
		"v1 without freezer": {"6:freezer:/x\n", v2Mounts, "", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, v2, err := freezerFile(c.cgroup, c.mounts)
			if c.fails {
				if err == nil {
					t.Errorf("no error, but %s", got)
				}
				return
			}
			if err != nil || got != c.want || v2 != c.v2 {
				t.Errorf("got %s %v %v", got, v2, err)
			}
		})
	}
}

func TestKernelReadsBothVersions(t *testing.T) {
	dir := t.TempDir()
	write := func(path, text string) {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("self/mountinfo", "1 1 0:1 / "+dir+"/v2 rw - cgroup2 cgroup2 rw\n1 1 0:1 / "+dir+"/v1 rw - cgroup cgroup rw,freezer\n")
	write("7/cgroup", "0::/x\n")
	write("8/cgroup", "3:freezer:/x\n0::/x\n")
	for _, c := range []struct {
		v2, v1 string
		want   bool
	}{
		{"populated 1\nfrozen 1\n", "FROZEN\n", true},
		{"populated 1\nfrozen 0\n", "FREEZING\n", false},
		{"populated 1\nfrozen 0\n", "THAWED\n", false},
	} {
		write("v2/x/cgroup.events", c.v2)
		write("v1/x/freezer.state", c.v1)
		for _, pid := range []int{7, 8} {
			if got, err := (Kernel{Proc: dir}).Frozen(pid); got != c.want || err != nil {
				t.Errorf("%d %+v: %v %v", pid, c, got, err)
			}
		}
	}
	if _, err := (Kernel{Proc: dir}).Frozen(9); err == nil {
		t.Error("no error for a process that is gone")
	}
}
