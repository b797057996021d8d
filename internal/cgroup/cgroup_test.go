package cgroup_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
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

// A container's group is found by its id in the controller's hierarchy, with the root whose limits
// bound it. freezer's tests have more of the names.
func TestOfContainer(t *testing.T) {
	id := strings.Repeat("a", 64)
	for name, c := range map[string]struct {
		mountinfo, want string
		v2              bool
		err             error
	}{
		"v2":          {"1 1 0:1 /../.. @/v2 rw - cgroup2 cgroup2 rw\n", "v2/pod/x-" + id + ".scope", true, nil},
		"v1":          {"1 1 0:1 / @/v2 rw - cgroup2 cgroup2 rw\n2 1 0:1 / @/v1 rw - cgroup cgroup rw,memory\n", "v1/" + id, false, nil},
		"not in it":   {"1 1 0:1 / @/empty rw - cgroup2 cgroup2 rw\n", "", true, fs.ErrNotExist},
		"not mounted": {"", "", false, cgroup.ErrNotMounted},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, folder := range []string{"self", "v2/pod/x-" + id + ".scope", "v1/" + id, "empty"} {
				if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(dir, "self/mountinfo"), []byte(strings.ReplaceAll(c.mountinfo, "@", dir)), 0o600); err != nil {
				t.Fatal(err)
			}
			g, err := cgroup.OfContainer(dir, "memory", id)
			if c.err != nil {
				if !errors.Is(err, c.err) {
					t.Errorf("%+v, %v; want %v", g, err, c.err)
				}
				return
			}
			if root := filepath.Join(dir, c.want[:2]); err != nil || g.Dir != filepath.Join(dir, c.want) || g.Root != root || g.V2 != c.v2 {
				t.Errorf("%+v, %v; want %s in %s", g, err, c.want, root)
			}
		})
	}
}
