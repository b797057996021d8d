package freezer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laxity/laxity/internal/cache"
	"github.com/laxity/laxity/internal/needtest"
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
		"of a pod, CRI-O":              {"/kubepods.slice/kubepods-pod7c1.slice/crio-" + id + ".scope", "kubepods.slice/kubepods-pod7c1.slice/crio-" + id + ".scope"},
		"of a pod, CRI-O with crun":    {"/kubepods.slice/kubepods-pod7c1.slice/crio-" + id + ".scope/container", "kubepods.slice/kubepods-pod7c1.slice/crio-" + id + ".scope"},
		"of a pod, CRI-O, cgroupfs":    {"/kubepods/pod7c1/crio-" + id, "kubepods/pod7c1/crio-" + id},
		"of CRI-O's monitor":           {"/kubepods.slice/kubepods-pod7c1.slice/crio-conmon-" + id + ".scope", ""},
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

// Who is to be stopped, and who is, may differ for a while.
func TestAsked(t *testing.T) {
	for _, c := range []struct {
		v2            bool
		files         map[string]string
		asked, frozen bool
	}{
		{false, map[string]string{"freezer.state": "THAWED\n"}, false, false},
		{false, map[string]string{"freezer.state": "FREEZING\n"}, true, false},
		{false, map[string]string{"freezer.state": "FROZEN\n"}, true, true},
		{true, map[string]string{"cgroup.freeze": "0\n", "cgroup.events": "populated 1\nfrozen 0\n"}, false, false},
		{true, map[string]string{"cgroup.freeze": "1\n", "cgroup.events": "populated 1\nfrozen 0\n"}, true, false},
		{true, map[string]string{"cgroup.freeze": "1\n", "cgroup.events": "populated 1\nfrozen 1\n"}, true, true},
	} {
		g := Group{t.TempDir(), c.v2}
		for name, text := range c.files {
			if err := os.WriteFile(filepath.Join(g.Dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		asked, err := g.Asked()
		frozen, ferr := g.Frozen()
		if asked != c.asked || frozen != c.frozen || err != nil || ferr != nil {
			t.Errorf("%v: asked %v, frozen %v, %v, %v", c.files, asked, frozen, err, ferr)
		}
	}
	if asked, err := (Group{Dir: t.TempDir()}).Asked(); asked || err == nil {
		t.Errorf("of a group that is gone: %v, %v", asked, err)
	}
}

// The state counts of the container's own group and of those below it down to its process, as crun
// freezes the one below; also from a cgroup namespace of one's own, and without a process. A group
// that the engine named otherwise is the process's.
func TestState(t *testing.T) {
	id := strings.Repeat("a", 64)
	for name, tt := range map[string]struct {
		cgroup     string            // of process 7
		below, own map[string]string // files of the two groups
		want       State
	}{
		"runs":                         {"/p/x-" + id + ".scope/below", events(0, 0), events(0, 0), Thawed},
		"own freezes":                  {"/p/x-" + id + ".scope/below", events(0, 0), events(1, 0), Freezing},
		"below freezes":                {"/p/x-" + id + ".scope/below", events(1, 0), events(0, 0), Freezing},
		"own froze":                    {"/p/x-" + id + ".scope/below", events(0, 1), events(1, 1), Frozen},
		"below froze":                  {"/p/x-" + id + ".scope/below", events(1, 1), events(0, 0), Frozen},
		"outside, runs":                {"/../p/x-" + id + ".scope/below", events(0, 0), events(0, 0), Thawed},
		"outside, below":               {"/../p/x-" + id + ".scope/below", events(1, 1), events(0, 0), Frozen},
		"outside, below as it freezes": {"/../p/x-" + id + ".scope/below", events(1, 0), events(0, 0), Freezing},
		"outside, below ended":         {"/../p/x-" + id + ".scope/ended", events(0, 0), events(1, 1), Frozen},
		"outside, freezes":             {"/../p/x-" + id + ".scope", events(0, 0), events(1, 0), Freezing},
		"outside, froze":               {"/../p/x-" + id + ".scope", events(0, 0), events(1, 1), Frozen},
		"process gone":                 {"", events(0, 0), events(1, 1), Frozen},
		"process gone, below froze":    {"", events(1, 1), events(0, 0), Frozen},
		"process gone, below freezes":  {"", events(1, 0), events(0, 0), Freezing},
		"reused PID":                   {"/../other", events(1, 1), events(0, 0), Frozen},
		"named otherwise":              {"/other", events(0, 0), nil, Freezing},
		"nowhere":                      {"", nil, nil, Thawed},
		"outside, no group":            {"/../q", nil, nil, Thawed},
	} {
		t.Run(name, func(t *testing.T) {
			dir, write := bothVersions(t)
			write("self/mountinfo", "1 1 0:1 / "+dir+"/v2 rw - cgroup2 cgroup2 rw\n")
			if tt.cgroup != "" {
				write("7/cgroup", "0::"+tt.cgroup+"\n")
			}
			for group, files := range map[string]map[string]string{"p/x-" + id + ".scope/below": tt.below, "p/x-" + id + ".scope": tt.own, "other": events(1, 0)} {
				for file, text := range files {
					if tt.own != nil || group == "other" {
						write("v2/"+group+"/"+file, text)
					}
				}
			}
			kernel := Kernel{Proc: dir}
			state, err := kernel.State(id, 7)
			if missing := tt.own == nil && name != "named otherwise"; state != tt.want || errors.Is(err, fs.ErrNotExist) != missing || (err != nil) != missing {
				t.Errorf("%v, %v; want %v", state, err, tt.want)
			}
			if tt.own == nil {
				if err := kernel.Set(id, 7, true); err == nil {
					t.Error("set a group that is not by its name the container's")
				}
				return
			}
			if err := kernel.Set(id, 7, false); err != nil {
				t.Error(err)
			}
			for _, group := range []string{"p/x-" + id + ".scope/below", "p/x-" + id + ".scope"} {
				if text, err := os.ReadFile(filepath.Join(dir, "v2", group, "cgroup.freeze")); err != nil || !strings.HasPrefix(string(text), "0") {
					t.Errorf("%s is %q after a thaw, %v", group, text, err)
				}
			}
		})
	}
}

// events are the files of a group of version 2.
func events(asked, frozen int) map[string]string {
	return map[string]string{"cgroup.freeze": fmt.Sprintln(asked), "cgroup.events": fmt.Sprintf("populated 1\nfrozen %d\n", frozen)}
}

// A group that is frozen and has no process stops nobody. What its version 1 has is not known: a
// process of another PID namespace is not in its cgroup.procs.
func TestEmptyGroup(t *testing.T) {
	for name, tt := range map[string]struct {
		v2    bool
		files map[string]string
		want  State
	}{
		"version 2, empty":     {true, map[string]string{"cgroup.freeze": "1\n", "cgroup.events": "populated 0\nfrozen 0\n"}, Thawed},
		"version 2, as frozen": {true, map[string]string{"cgroup.freeze": "1\n", "cgroup.events": "populated 0\nfrozen 1\n"}, Thawed},
		"version 2, a process": {true, map[string]string{"cgroup.freeze": "1\n", "cgroup.events": "populated 1\nfrozen 0\n"}, Freezing},
		"version 1":            {false, map[string]string{"freezer.state": "FROZEN\n", "cgroup.procs": ""}, Frozen},
	} {
		g := Group{t.TempDir(), tt.v2}
		for file, text := range tt.files {
			if err := os.WriteFile(filepath.Join(g.Dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if state, err := g.State(); state != tt.want || err != nil {
			t.Errorf("%s: %v, %v; want %v", name, state, err, tt.want)
		}
	}
}

// A group that was found is looked for again only once it is gone, and not all are remembered.
func TestFindRemembers(t *testing.T) {
	id := strings.Repeat("a", 64)
	dir, write := bothVersions(t)
	kernel := New(dir)
	expect := func(group string) {
		t.Helper()
		g, err := kernel.Find(id)
		if found := err == nil; found != (group != "") || found && g.Dir != filepath.Join(dir, "v1", group, id) || !found && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("found %+v, %v; want it in %q", g, err, group)
		}
	}
	remove := func(group string) {
		if err := os.RemoveAll(filepath.Join(dir, "v1", group)); err != nil {
			t.Fatal(err)
		}
	}
	expect("")
	write("v1/second/"+id+"/freezer.state", "THAWED\n")
	expect("second")
	write("v1/first/"+id+"/freezer.state", "THAWED\n")
	expect("second")
	remove("second")
	expect("first")
	remove("first")
	expect("")
	for i := range 3 * cache.Most {
		kernel.found.Put(fmt.Sprint(i), Group{})
	}
	if n := kernel.found.Len(); n > cache.Most {
		t.Errorf("%d groups are remembered", n)
	}
}

// A container's group is found by its id alone, and a process in it.
func TestFind(t *testing.T) {
	id, other := strings.Repeat("a", 64), strings.Repeat("b", 64)
	dir, write := bothVersions(t)
	kernel := Kernel{Proc: dir}
	write("v1/kubepods.slice/pod.slice/crio-conmon-"+id+".scope/freezer.state", "")
	if g, err := kernel.Find(id); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("found its monitor: %+v, %v", g, err)
	}
	own := "kubepods.slice/pod.slice/crio-" + id + ".scope"
	write("v1/"+own+"/freezer.state", "THAWED\n")
	write("v1/"+own+"/cgroup.procs", "")
	g, err := kernel.Find(id)
	if err != nil || g.V2 || g.Dir != filepath.Join(dir, "v1", own) {
		t.Fatalf("%+v, %v", g, err)
	}
	if pid, err := g.PID(); err == nil {
		t.Errorf("of an empty group: %d", pid)
	}
	write("v1/"+own+"/container/cgroup.procs", "7\n8\n")
	if pid, err := g.PID(); pid != 7 || err != nil {
		t.Errorf("%d, %v", pid, err)
	}
	if g, err := kernel.Find(other); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("another's: %+v, %v", g, err)
	}
	// A container may name a group below its own as it likes: another container's group outside goes before that.
	write("v1/"+own+"/a/"+other+"/freezer.state", "THAWED\n")
	for _, want := range []string{own + "/a/" + other, "system.slice/docker-" + other + ".scope"} {
		write("v1/"+want+"/freezer.state", "THAWED\n")
		if g, err := kernel.Find(other); err != nil || g.Dir != filepath.Join(dir, "v1", want) {
			t.Errorf("%+v, %v; want %s", g, err, want)
		}
	}
	if _, err := (Kernel{Proc: t.TempDir()}).Find(id); err == nil {
		t.Error("no error without mounts")
	}
}

// The kernel's own freezer of version 2 stops and continues a process.
func TestVersion2(t *testing.T) {
	root := unified(t)
	id := strings.Repeat("c", 62) + fmt.Sprintf("%02x", os.Getpid()%256)
	dir := filepath.Join(root, "crio-"+id+".scope")
	if err := os.Mkdir(dir, 0o755); err != nil {
		needtest.Cgroup.Skip(t, err)
	}
	t.Cleanup(func() { _ = os.Remove(dir) })
	cmd := exec.CommandContext(t.Context(), "sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait(); _ = os.Remove(dir) })
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(fmt.Sprint(cmd.Process.Pid)), 0o600); err != nil {
		t.Fatal(err)
	}
	// A machine with version 2 alone.
	proc := t.TempDir()
	for path, text := range map[string]string{
		"self/mountinfo":                       "1 1 0:1 / " + root + " rw - cgroup2 cgroup2 rw\n",
		fmt.Sprint(cmd.Process.Pid, "/cgroup"): "0::/crio-" + id + ".scope\n",
	} {
		path = filepath.Join(proc, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	kernel := Kernel{Proc: proc}
	for _, frozen := range []bool{true, false} {
		if err := kernel.Set(id, cmd.Process.Pid, frozen); err != nil {
			t.Fatal(err)
		}
		for is := !frozen; is != frozen; { // the kernel takes a moment
			var err error
			if is, err = kernel.Frozen(cmd.Process.Pid); err != nil {
				t.Fatal(err)
			}
		}
		for _, pid := range []int{cmd.Process.Pid, 0} { // 0: by the id alone
			if state, err := kernel.State(id, pid); state != stateOf(frozen, false) || err != nil {
				t.Errorf("state %v, %v; want frozen %v", state, err, frozen)
			}
		}
		g, err := kernel.Find(id)
		if err != nil || !g.V2 {
			t.Fatalf("%+v, %v", g, err)
		}
		if is, err := g.Frozen(); is != frozen || err != nil {
			t.Errorf("found: frozen %v, %v; want %v", is, err, frozen)
		}
		if asked, err := g.Asked(); asked != frozen || err != nil {
			t.Errorf("asked %v, %v; want %v", asked, err, frozen)
		}
		if pid, err := g.PID(); pid != cmd.Process.Pid || err != nil {
			t.Errorf("its process is %d, %v", pid, err)
		}
	}
}

// crun freezes a group below the container's. The kernel is asked as in a cgroup namespace of one's
// own, by the process and by the id alone.
func TestCrun(t *testing.T) {
	root := unified(t)
	id := strings.Repeat("d", 62) + fmt.Sprintf("%02x", os.Getpid()%256)
	own := filepath.Join(root, "libpod-"+id+".scope")
	below := Group{filepath.Join(own, "container"), true}
	if err := os.MkdirAll(below.Dir, 0o755); err != nil {
		needtest.Cgroup.Skip(t, err)
	}
	t.Cleanup(func() { _ = os.Remove(own) })
	t.Cleanup(func() { _ = os.Remove(below.Dir) })
	cmd := exec.CommandContext(t.Context(), "sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if err := os.WriteFile(filepath.Join(below.Dir, "cgroup.procs"), []byte(fmt.Sprint(pid)), 0o600); err != nil {
		t.Fatal(err)
	}
	proc := t.TempDir()
	for path, text := range map[string]string{
		"self/mountinfo":           "1 1 0:1 /../.. " + root + " rw - cgroup2 cgroup2 rw\n",
		fmt.Sprint(pid, "/cgroup"): "0::/../../libpod-" + id + ".scope/container\n",
	} {
		path = filepath.Join(proc, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	kernel := New(proc)
	expect := func(of int, want State) {
		t.Helper()
		for {
			state, err := kernel.State(id, of)
			if err != nil || state != want && state != Freezing {
				t.Fatalf("process %d: %v, %v; want %v", of, state, err, want)
			}
			if state == want { // the kernel takes a moment
				return
			}
		}
	}
	for _, of := range []int{pid, 0} {
		expect(of, Thawed)
		if err := below.Set(true); err != nil {
			t.Fatal(err)
		}
		expect(of, Frozen)
		if err := kernel.Set(id, of, false); err != nil {
			t.Fatal(err)
		}
		expect(of, Thawed)
	}
}

// unified is where control groups of version 2 are mounted.
func unified(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if left, right, ok := strings.Cut(line, " - "); ok && strings.HasPrefix(right, "cgroup2 ") {
			return strings.Fields(left)[4]
		}
	}
	needtest.Cgroup.Skip(t, errors.New("no control groups of version 2 are mounted"))
	return ""
}
