package docker

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/laxity/laxity/internal/cgroup"
)

// Kernel is the kernel's freezer: cgroup.events and cgroup.freeze of cgroup v2,
// freezer.state of v1.
type Kernel struct {
	// Proc is where procfs of the host is mounted.
	Proc string
}

// Frozen implements Freezer.
func (k Kernel) Frozen(pid int) (bool, error) {
	g, err := cgroup.Of(k.Proc, pid, "freezer")
	if err != nil {
		return false, err
	}
	if g.V2 {
		b, err := os.ReadFile(filepath.Join(g.Dir, "cgroup.events"))
		return slices.Contains(strings.Split(string(b), "\n"), "frozen 1"), err
	}
	b, err := os.ReadFile(filepath.Join(g.Dir, "freezer.state"))
	return strings.TrimSpace(string(b)) == "FROZEN", err
}

// Set implements Freezer.
func (k Kernel) Set(pid int, frozen bool) error {
	g, err := cgroup.Of(k.Proc, pid, "freezer")
	if err != nil {
		return err
	}
	file, state := "freezer.state", map[bool]string{true: "FROZEN", false: "THAWED"}[frozen]
	if g.V2 {
		file, state = "cgroup.freeze", map[bool]string{true: "1", false: "0"}[frozen]
	}
	f, err := os.OpenFile(filepath.Join(g.Dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(state)
	return errors.Join(err, f.Close())
}
