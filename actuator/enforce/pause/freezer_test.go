package pause

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// bothVersions is a folder like /proc whose machine has control groups of both versions, in
// v1 and v2.
func bothVersions(t *testing.T) (dir string, write func(path, text string)) {
	dir = t.TempDir()
	write = func(path, text string) {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("self/mountinfo", "1 1 0:1 / "+dir+"/v2 rw - cgroup2 cgroup2 rw\n1 1 0:1 / "+dir+"/v1 rw - cgroup cgroup rw,freezer\n")
	return dir, write
}

func TestKernelOfBothVersions(t *testing.T) {
	dir, write := bothVersions(t)
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

// Only the container's own control group is frozen: not one below, not another's whose
// process has the PID by now, and not one that a container named like another.
func TestKernelSetsTheContainersOwnGroup(t *testing.T) {
	id, other := strings.Repeat("a", 64), strings.Repeat("b", 64)
	for name, tt := range map[string]struct{ group, want string }{
		"of cgroupfs":                  {"/docker/" + id, "docker/" + id},
		"of systemd":                   {"/system.slice/docker-" + id + ".scope", "system.slice/docker-" + id + ".scope"},
		"of a pod, cgroupfs":           {"/kubepods/besteffort/pod7c1/" + id, "kubepods/besteffort/pod7c1/" + id},
		"of a pod, systemd":            {"/kubepods.slice/kubepods-pod7c1.slice/cri-containerd-" + id + ".scope", "kubepods.slice/kubepods-pod7c1.slice/cri-containerd-" + id + ".scope"},
		"of a pod, with colons":        {"/system.slice/kubepods-pod7c1.slice:cri-containerd:" + id, "system.slice/kubepods-pod7c1.slice:cri-containerd:" + id},
		"below":                        {"/docker/" + id + "/inner/most", "docker/" + id},
		"of another":                   {"/docker/" + other, ""},
		"of another, named like it":    {"/docker/" + other + "x/" + id[1:], ""},
		"of the host":                  {"/system.slice/ssh.service", ""},
		"of everybody":                 {"/", ""},
		"of its monitor":               {"/libpod-conmon-" + id + ".scope", ""},
		"of its own, a group below it": {"/docker/" + id + "/docker/" + id, "docker/" + id},
	} {
		t.Run(name, func(t *testing.T) {
			for _, v := range []struct{ cgroup, root, file, frozen, thawed string }{
				{"0::" + tt.group + "\n", "v2", "cgroup.freeze", "1", "0"},
				{"3:freezer:" + tt.group + "\n0::/x\n", "v1", "freezer.state", "FROZEN", "THAWED"},
			} {
				dir, write := bothVersions(t)
				write("7/cgroup", v.cgroup)
				write(filepath.Join(v.root, tt.group, v.file), "")
				if tt.want != "" {
					write(filepath.Join(v.root, tt.want, v.file), "")
				}
				for frozen, text := range map[bool]string{true: v.frozen, false: v.thawed} {
					err := (Kernel{Proc: dir}).Set(id, 7, frozen)
					if tt.want == "" {
						if got, _ := os.ReadFile(filepath.Join(dir, v.root, tt.group, v.file)); err == nil || len(got) > 0 {
							t.Errorf("%s: set to %q, %v", v.root, got, err)
						}
						continue
					}
					file := filepath.Join(dir, v.root, tt.want, v.file)
					got, _ := os.ReadFile(file)
					if err != nil || string(got) != text {
						t.Errorf("%s set %v: %q %v", v.root, frozen, got, err)
					}
					if err := os.Truncate(file, 0); err != nil { // a file of the kernel's has no old content
						t.Fatal(err)
					}
				}
			}
		})
	}
}
