package pause

import (
	"errors"
	"fmt"
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
func (k Kernel) Set(id string, pid int, frozen bool) error {
	g, err := cgroup.Of(k.Proc, pid, "freezer")
	if err != nil {
		return err
	}
	dir, err := containers(g, id)
	if err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	file, state := "freezer.state", map[bool]string{true: "FROZEN", false: "THAWED"}[frozen]
	if g.V2 {
		file, state = "cgroup.freeze", map[bool]string{true: "1", false: "0"}[frozen]
	}
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(state)
	return errors.Join(err, f.Close())
}

// containers returns the folder of the container's own control group. The process may be in a group
// below it. The outermost group with the container's name counts, since a container names the
// groups below its own as it likes. A reused PID is in none.
func containers(g cgroup.Group, id string) (string, error) {
	below, err := filepath.Rel(g.Root, g.Dir)
	if err != nil {
		return "", err
	}
	dir := g.Root
	for name := range strings.SplitSeq(below, string(filepath.Separator)) {
		dir = filepath.Join(dir, name)
		name = strings.TrimSuffix(name, ".scope")
		if i := strings.LastIndexAny(name, "-:"); name[i+1:] == id && !strings.HasSuffix(name[:i+1], "conmon-") {
			return dir, nil
		}
	}
	return "", fmt.Errorf("its control group %s is not container %.12s's", g.Dir, id)
}
