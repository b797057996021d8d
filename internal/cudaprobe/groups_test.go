package cudaprobe_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/internal/cudaprobe"
	"github.com/laxity/laxity/internal/cudaprobe/cudatest"
	"github.com/laxity/laxity/internal/needtest"
)

// hierarchies are where an engine of this machine may put its containers.
func hierarchies() (dirs []string) {
	for _, dir := range []string{"/sys/fs/cgroup/devices", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"} { // v1, hybrid, v2
		if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err == nil {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// group makes control groups within each other, outermost first, and takes them
// away when the test ends.
func group(t *testing.T, dir string, names ...string) string {
	t.Helper()
	for _, name := range names {
		made := filepath.Join(dir, name)
		if err := os.Mkdir(made, 0o755); err != nil {
			needtest.Cgroup.Skip(t, "needs to make control groups:", err)
		}
		t.Cleanup(func() {
			if err := os.Remove(made); err != nil {
				t.Error(err)
			}
		})
		dir = made
	}
	return dir
}

func (h *harness) startIn(t *testing.T, dir string) *cudatest.Program {
	t.Helper()
	p := h.built.Start(t)
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(p.PID)), 0o644); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestEventNamesItsControlGroups(t *testing.T) {
	h := watched(t, cudaprobe.Options{})
	parent := "laxity-test-" + strconv.Itoa(os.Getpid())
	outer, inner := strings.Repeat("0123456789abcdef", 4), strings.Repeat("fedcba9876543210", 4)
	pod := "kubepods-besteffort-pod" + strings.Repeat("7", 36) + ".slice:cri-containerd:" + outer
	deep := []string{parent, outer}
	for range 30 {
		deep = append(deep, "x")
	}
	for _, tt := range []struct {
		name string
		in   []string
		want string
	}{
		{"none", []string{parent}, ""},
		{"container", []string{parent, outer}, "/" + outer},
		{"systemd", []string{parent, "docker-" + outer + ".scope"}, "/docker-" + outer + ".scope"},
		{"one below", []string{parent, outer, "x"}, "/" + outer},
		{"the longest of an engine", []string{parent, pod}, "/" + pod},
		{"a container's own", []string{parent, outer, "x", inner}, "/" + outer + "/" + inner},
		{"many of its own", []string{parent, outer, inner + "1", inner + "2", inner + "3", inner + "4", inner + "5"},
			"/" + outer + "/" + inner + "1/" + inner + "2"},
		{"a name without room", []string{parent, outer, strings.Repeat("y", 200)}, ""},
		{"deeper than is looked", deep, ""},
	} {
		for _, hierarchy := range hierarchies() {
			t.Run(tt.name+" in "+filepath.Base(hierarchy), func(t *testing.T) {
				dir := group(t, hierarchy, tt.in...)
				p := h.startIn(t, dir)
				for _, call := range []struct {
					kind cudaprobe.Kind
					name string
				}{{cudaprobe.InitCalled, "cuInit"}, {cudaprobe.ContextCalled, "cuDevicePrimaryCtxRetain"}} {
					e := h.expect(t, p, call.kind, p.Call(call.name))
					if e.Cgroup != tt.want {
						t.Errorf("%s: group %q, want %q", call.name, e.Cgroup, tt.want)
					}
				}
				killed := time.Now()
				if err := unix.Kill(p.PID, unix.SIGKILL); err != nil {
					t.Fatal(err)
				}
				h.expect(t, p, cudaprobe.Exiting, cudatest.Called{Before: killed, After: time.Now().Add(patience)})
			})
		}
	}
}
