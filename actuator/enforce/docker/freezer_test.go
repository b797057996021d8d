package docker

import (
	"os"
	"path/filepath"
	"testing"
)

func TestKernelOfBothVersions(t *testing.T) {
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
	write("v2/x/cgroup.freeze", "")
	for _, frozen := range []bool{true, false} {
		for pid, want := range map[int]map[bool]string{7: {true: "1", false: "0"}, 8: {true: "FROZEN", false: "THAWED"}} {
			file := filepath.Join(dir, map[int]string{7: "v2/x/cgroup.freeze", 8: "v1/x/freezer.state"}[pid])
			if err := os.Truncate(file, 0); err != nil { // a file of the kernel's has no old content
				t.Fatal(err)
			}
			err := (Kernel{Proc: dir}).Set(pid, frozen)
			if got, _ := os.ReadFile(file); err != nil || string(got) != want[frozen] {
				t.Errorf("%d set %v: %q %v", pid, frozen, got, err)
			}
		}
	}
	if _, err := (Kernel{Proc: dir}).Frozen(9); err == nil {
		t.Error("no error for a process that is gone")
	}
}
