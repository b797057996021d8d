// Package freezer stops and continues all processes of a container by the kernel's freezer, and says
// whether they are stopped.
//
// It is a leaf, upon internal/cgroup. It imports internal/cache, internal/cgroup and the standard library.
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
	"syscall"

	"github.com/laxity/laxity/internal/cache"
	"github.com/laxity/laxity/internal/cgroup"
)

// Kernel is the kernel's freezer: cgroup.events and cgroup.freeze of cgroup v2,
// freezer.state of v1.
type Kernel struct {
	// Proc is where procfs of the host is mounted.
	Proc  string
	found *cache.Cache[Group] // the containers' own control groups
}

// New returns a Kernel that remembers where Find found a container.
func New(proc string) Kernel { return Kernel{proc, &cache.Cache[Group]{}} }

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
	var state State
	for i, g := range groups {
		of, err := g.State()
		switch {
		case err == nil:
			state = max(state, of)
		case i == 0 || !ended(err): // a group below may end meanwhile
			return Thawed, err
		}
	}
	return state, nil
}

// ended reports whether a file could not be read because its group is gone, or went while it was read.
func ended(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) }

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

// groups returns the container's own control group, and those below it down to the process's. Where
// the process's group cannot be seen by its path, because it is outside of our cgroup namespace, the
// container's own is found by the id. crun freezes a group below that, so where no process tells of
// one, groups returns all that are directly below.
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
	if path, _, err := cgroup.Path(k.Proc, pid, controller); err == nil {
		if _, below, ok := cgroup.Cut(path, id); ok {
			return own.downTo(below), nil
		}
	}
	return own.directlyBelow()
}

// downTo returns the group and those below it on the way to the names.
func (g Group) downTo(names []string) []Group {
	groups := []Group{g}
	for _, name := range names {
		g.Dir = filepath.Join(g.Dir, name)
		groups = append(groups, g)
	}
	return groups
}

// directlyBelow returns the group and those directly below it.
func (g Group) directlyBelow() ([]Group, error) {
	entries, err := os.ReadDir(g.Dir)
	groups := []Group{g}
	for _, e := range entries {
		if e.IsDir() {
			groups = append(groups, Group{filepath.Join(g.Dir, e.Name()), g.V2})
		}
	}
	return groups, err
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
// tens of milliseconds on a full node; New's Kernel remembers it. It needs no process of the
// container, and it works from a cgroup namespace of one's own where the host's groups are mounted.
// The error wraps fs.ErrNotExist where there is none.
func (k Kernel) Find(id string) (Group, error) {
	if g, ok := k.found.Get(id); ok {
		if _, err := os.Lstat(g.Dir); err == nil { // it is still there
			return g, nil
		}
		k.found.Forget(id)
	}
	found, err := cgroup.OfContainer(k.Proc, controller, id)
	if err != nil {
		return Group{}, err
	}
	g := Group{found.Dir, found.V2}
	k.found.Put(id, g)
	return g, nil
}

// containers returns the container's own control group and those below it down to g. A reused PID is
// in none.
func containers(g cgroup.Group, id string) ([]Group, error) {
	path, err := filepath.Rel(g.Root, g.Dir)
	if err != nil {
		return nil, err
	}
	own, below, ok := cgroup.Cut(path, id)
	if !ok {
		return nil, fmt.Errorf("its control group %s is not container %.12s's", g.Dir, id)
	}
	return Group{filepath.Join(g.Root, own), g.V2}.downTo(below), nil
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

// State reads both. A group of version 2 without processes, as a container may leave behind, counts
// as thawed: nobody waits in it. Version 1 cannot tell: its cgroup.procs leaves out the processes of
// other PID namespaces.
func (g Group) State() (State, error) {
	frozen, err := g.Frozen()
	if err != nil {
		return Thawed, err
	}
	asked, err := g.Asked()
	if err != nil || !frozen && !asked {
		return Thawed, err
	}
	if empty, err := g.empty(); err != nil || empty {
		return Thawed, err
	}
	return stateOf(frozen, asked), nil
}

// empty reports whether no process is in the group, or below it.
func (g Group) empty() (bool, error) {
	if !g.V2 {
		return false, nil
	}
	b, err := os.ReadFile(filepath.Join(g.Dir, "cgroup.events"))
	return slices.Contains(strings.Split(string(b), "\n"), "populated 0"), err
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
