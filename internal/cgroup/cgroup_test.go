package cgroup_test

import (
	"testing"

	"github.com/laxity/laxity/internal/cgroup"
)

func TestFind(t *testing.T) {
	const v1Mounts = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n" +
		"32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n" +
		"37 31 0:34 / /sys/fs/cgroup/freezer rw shared:5 - cgroup cgroup rw,freezer\n" +
		"41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
	const v2Mounts = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
	for name, c := range map[string]struct {
		cgroup, mounts, want string
		v2, fails            bool
	}{
		"v1":                 {"9:cpu,cpuacct:/docker/x\n6:freezer:/docker/x\n0::/\n", v1Mounts, "/sys/fs/cgroup/freezer/docker/x", false, false},
		"v2 systemd":         {"0::/system.slice/docker-x.scope\n", v2Mounts, "/sys/fs/cgroup/system.slice/docker-x.scope", true, false},
		"private namespace":  {"0::/../x\n", "30 23 0:26 /../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "", true, true},
		"other part mounted": {"0::/b/x\n", "30 23 0:26 /a /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "", true, true},
		"v2, part mounted":   {"0::/a/b/x\n", "30 23 0:26 /a /mnt/my\\040cg rw - cgroup2 cgroup2 rw\n", "/mnt/my cg/b/x", true, false},
		"no mount":           {"0::/x\n", "", "", false, true},
		"no cgroup":          {"", v2Mounts, "", false, true},
		"v1 without freezer": {"6:freezer:/x\n", v2Mounts, "", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := cgroup.Find(c.cgroup, c.mounts, "freezer")
			if c.fails {
				if err == nil {
					t.Errorf("no error, but %+v", got)
				}
				return
			}
			if err != nil || got.Dir != c.want || got.V2 != c.v2 {
				t.Errorf("got %+v %v", got, err)
			}
		})
	}
}
