package cgroup

import (
	"encoding/hex"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// OfContainer looks for the container's own control group below every one that is visible, which takes
// tens of milliseconds on a full node. It needs no process of the container, and it works from a cgroup
// namespace of one's own where the host's groups are mounted. The error wraps fs.ErrNotExist where there
// is none, and ErrNotMounted where no groups are mounted.
func OfContainer(proc, controller, id string) (Group, error) {
	mounts, err := Mounts(proc, controller)
	if err != nil {
		return Group{}, err
	}
	// First none below a container's, which names those as it likes; then also these: an engine may run in a container.
	for _, below := range []bool{false, true} {
		for _, m := range mounts {
			found, err := find(m.Dir, id, below)
			if err != nil || found != "" {
				return Group{Dir: found, Root: m.Root, V2: m.V2}, err
			}
		}
	}
	return Group{}, fmt.Errorf("no control group of container %.12s is visible: %w", id, fs.ErrNotExist)
}

// find returns the folder of a container's control group; "" without one. below: also those below the group of
// another container.
func find(dir, id string, below bool) (found string, err error) {
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil: // it ended meanwhile
			return nil //nolint:nilerr // the others count
		case !entry.IsDir():
		case isOf(entry.Name(), id):
			found = path
			return fs.SkipAll
		case !below && isContainers(entry.Name()):
			return fs.SkipDir
		}
		return nil
	})
	return found, err
}

// Cut returns the path of the container's own control group, and the names that follow it in the
// path of a process's. The outermost group with the container's name is its own, since a container
// names the groups below that as it likes.
func Cut(path, id string) (own string, below []string, found bool) {
	names := strings.Split(path, "/")
	i := slices.IndexFunc(names, func(name string) bool { return isOf(name, id) })
	if i < 0 {
		return "", nil, false
	}
	return strings.Join(names[:i+1], "/"), names[i+1:], true
}

// isOf reports whether a control group of this name is the container's, and not its monitor's.
func isOf(name, id string) bool {
	before, last := lastPart(name)
	return last == id && !strings.HasSuffix(before, "conmon-")
}

// isContainers reports whether a control group of this name is some container's: engines name it by an id of 64 digits.
func isContainers(name string) bool {
	_, last := lastPart(name)
	_, err := hex.DecodeString(last)
	return len(last) == 64 && err == nil
}

func lastPart(name string) (before, last string) {
	name = strings.TrimSuffix(name, ".scope")
	i := strings.LastIndexAny(name, "-:")
	return name[:i+1], name[i+1:]
}
