// Package freezer stops and continues all processes of a container by the kernel's freezer, and says
// whether they are stopped.
//
// It is a leaf, upon internal/cgroup. It imports internal/cgroup and the standard library.
package freezer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/laxity/laxity/internal/cgroup"
)

// Kernel is the kernel's freezer: cgroup.events and cgroup.freeze of cgroup v2,
// freezer.state of v1.
type Kernel struct {
	// Proc is where procfs of the host is mounted.
	Proc string
}

// Frozen reports whether the control group of a process is frozen.
func (k Kernel) Frozen(pid int) (bool, error) {
	g, err := cgroup.Of(k.Proc, pid, controller)
	if err != nil {
		return false, err
	}
	return Group{g.Dir, g.V2}.Frozen()
}

// State is what the kernel does with a container.
type State int

// The states of a container. Freezing comes before Frozen: a process that waits in the kernel, as in
// a call of a driver, stops when that returns.
const (
	Thawed   State = iota // it runs
	Freezing              // its processes are to stop, and not all have
	Frozen                // all of its processes are stopped
)

// String is the kernel's word.
func (s State) String() string { return [...]string{"THAWED", "FREEZING", "FROZEN"}[s] }

// State returns the state of the container with this id; pid is its first process, or 0 where that
// is not known. The error wraps fs.ErrNotExist where no control group of the container is visible.
func (k Kernel) State(id string, pid int) (State, error) {
	groups, err := k.groups(id, pid)
	if err != nil {
		g, perr := cgroup.Of(k.Proc, pid, controller)
		if perr != nil {
			return Thawed, err
		}
		groups = []Group{{g.Dir, g.V2}} // the engine did not name the group by the id
	}
	// A group below a frozen one is frozen too, and does not say that it is to be.
	frozen, err := groups[len(groups)-1].Frozen()
	if err != nil || frozen {
		return stateOf(frozen, false), err
	}
	for _, g := range groups {
		if asked, err := g.Asked(); err != nil || asked {
			return stateOf(false, asked), err
		}
	}
	return Thawed, nil
}

func stateOf(frozen, asked bool) State {
	switch {
	case frozen:
		return Frozen
	case asked:
		return Freezing
	default:
		return Thawed
	}
}

// Set freezes or thaws the container with this id; pid is one of its processes, or 0 where none is
// known. It returns an error and does nothing if no control group of this container is visible.
func (k Kernel) Set(id string, pid int, frozen bool) error {
	groups, err := k.groups(id, pid)
	if err != nil {
		return err
	}
	err = groups[0].Set(frozen)
	if frozen {
		return err
	}
	for _, g := range groups[1:] { // crun freezes a group below the container's
		if asked, aerr := g.Asked(); aerr == nil && asked {
			err = errors.Join(err, g.Set(false))
		}
	}
	return err
}

const controller = "freezer"

// groups returns the container's own control group, and those below it down to the process's. If the
// process's path does not lead there, because it is outside of our cgroup namespace or because the
// process is gone, it returns the container's own, by the id alone.
func (k Kernel) groups(id string, pid int) ([]Group, error) {
	g, err := cgroup.Of(k.Proc, pid, controller)
	if err == nil {
		var groups []Group
		if groups, err = containers(g, id); err == nil {
			return groups, nil
		}
	}
	own, ferr := k.Find(id)
	if ferr != nil {
		return nil, fmt.Errorf("process %d: %w", pid, errors.Join(err, ferr))
	}
	return []Group{own}, nil
}

// Of returns the container's own control group. The process may be in a group below it.
func (k Kernel) Of(id string, pid int) (Group, error) {
	g, err := cgroup.Of(k.Proc, pid, controller)
	if err != nil {
		return Group{}, err
	}
	groups, err := containers(g, id)
	if err != nil {
		return Group{}, fmt.Errorf("process %d: %w", pid, err)
	}
	return groups[0], nil
}

// Find looks for the container's own control group below every one that is visible, which takes
// milliseconds. It needs no process of the container, and it works from a cgroup namespace of one's
// own where the host's groups are mounted. The error wraps fs.ErrNotExist where there is none.
func (k Kernel) Find(id string) (Group, error) {
	mounts, err := cgroup.Mounts(k.Proc, controller)
	if err != nil {
		return Group{}, err
	}
	for _, m := range mounts {
		var found string
		err := filepath.WalkDir(m.Dir, func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil: // it ended meanwhile
				return nil //nolint:nilerr // the others count
			case entry.IsDir() && isOf(entry.Name(), id):
				found = path
				return fs.SkipAll
			}
			return nil
		})
		if err != nil || found != "" {
			return Group{found, m.V2}, err
		}
	}
	return Group{}, fmt.Errorf("no control group of container %.12s is visible: %w", id, fs.ErrNotExist)
}

// containers returns the container's own control group and those below it down to g. The outermost
// group with the container's name is its own, since a container names the groups below that as it
// likes. A reused PID is in none.
func containers(g cgroup.Group, id string) (groups []Group, err error) {
	below, err := filepath.Rel(g.Root, g.Dir)
	if err != nil {
		return nil, err
	}
	dir := g.Root
	for name := range strings.SplitSeq(below, string(filepath.Separator)) {
		if dir = filepath.Join(dir, name); groups != nil || isOf(name, id) {
			groups = append(groups, Group{dir, g.V2})
		}
	}
	if groups == nil {
		err = fmt.Errorf("its control group %s is not container %.12s's", g.Dir, id)
	}
	return groups, err
}

// isOf reports whether a control group of this name is the container's, and not its monitor's.
func isOf(name, id string) bool {
	name = strings.TrimSuffix(name, ".scope")
	i := strings.LastIndexAny(name, "-:")
	return name[i+1:] == id && !strings.HasSuffix(name[:i+1], "conmon-")
}

// Group is a control group with a freezer.
type Group struct {
	// Dir is its folder.
	Dir string
	// V2 is its version.
	V2 bool
}

// Frozen reports whether all of its processes are stopped.
func (g Group) Frozen() (bool, error) {
	if g.V2 {
		b, err := os.ReadFile(filepath.Join(g.Dir, "cgroup.events"))
		return slices.Contains(strings.Split(string(b), "\n"), "frozen 1"), err
	}
	b, err := os.ReadFile(filepath.Join(g.Dir, "freezer.state"))
	return strings.TrimSpace(string(b)) == "FROZEN", err
}

// State reads both.
func (g Group) State() (State, error) {
	frozen, err := g.Frozen()
	if err != nil {
		return Thawed, err
	}
	asked, err := g.Asked()
	return stateOf(frozen, asked), err
}

// Asked reports whether they are to be stopped, which comes before Frozen.
func (g Group) Asked() (bool, error) {
	if g.V2 {
		b, err := os.ReadFile(filepath.Join(g.Dir, "cgroup.freeze"))
		return strings.TrimSpace(string(b)) == "1", err
	}
	b, err := os.ReadFile(filepath.Join(g.Dir, "freezer.state"))
	return err == nil && strings.TrimSpace(string(b)) != "THAWED", err
}

// Set asks the kernel to stop or continue them. It does not wait until that is done. The error wraps
// fs.ErrNotExist where the group is gone.
func (g Group) Set(frozen bool) error {
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

// PID returns one of its processes, which may be in a group below it, or an error.
func (g Group) PID() (pid int, err error) {
	err = filepath.WalkDir(g.Dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return nil //nolint:nilerr // a group below that ended meanwhile
		}
		b, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		if err != nil {
			return nil //nolint:nilerr // as above, or a group that holds threads alone
		}
		first, _, _ := strings.Cut(string(b), "\n")
		if pid, err = strconv.Atoi(first); err != nil || pid <= 0 { // 0 is a process of another PID namespace
			pid = 0
			return nil //nolint:nilerr // none in this one
		}
		return fs.SkipAll
	})
	if err == nil && pid == 0 {
		err = fmt.Errorf("no process is in %s", g.Dir)
	}
	return pid, err
}
