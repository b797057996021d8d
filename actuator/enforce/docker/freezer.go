package docker

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/laxity/laxity/internal/cgroup"
)

// Kernel reads the kernel's freezer: cgroup.events of cgroup v2, freezer.state
// of v1. It never writes there: that would leave the engine with a wrong idea.
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
