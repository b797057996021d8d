// Package cgroup finds the folders of the control groups of processes and containers, of version 1 and 2.
// It only reads. It imports the standard library.
package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Group is a control group of one controller.
type Group struct {
	// Dir is its folder, Root that of the uppermost visible group.
	Dir, Root string
	// V2 is its version, on which the names of its files depend.
	V2 bool
}

// Of returns the group of a process for a controller, such as freezer or memory. If a machine
// mounts both versions, version 1 counts if it has the controller. proc is where procfs of the host
// is mounted.
func Of(proc string, pid int, controller string) (Group, error) {
	groups, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return Group{}, err
	}
	mounts, err := os.ReadFile(filepath.Join(proc, "self", "mountinfo"))
	if err != nil {
		return Group{}, err
	}
	return Find(string(groups), string(mounts), controller)
}

// Path returns the path of a process's group for a controller, as Of chooses the version. From a
// cgroup namespace of one's own it begins with /.. for a process outside of that, and ends as on the
// host. It is empty for a process that is in no group of the controller.
func Path(proc string, pid int, controller string) (path string, v2 bool, err error) {
	groups, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "cgroup"))
	path, v2 = pathOf(string(groups), controller)
	return path, v2, err
}

// pathOf returns the path of version 1, or that of version 2 where there is none.
func pathOf(groups, controller string) (path string, v2 bool) {
	for line := range strings.Lines(groups) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(f) != 3:
		case slices.Contains(strings.Split(f[1], ","), controller):
			return f[2], false
		case f[0] == "0" && f[1] == "":
			path = f[2]
		}
	}
	return path, true
}

// Find is Of on the content of /proc/PID/cgroup and /proc/self/mountinfo.
func Find(groups, mountinfo, controller string) (Group, error) {
	group, v2 := pathOf(groups, controller)
	fstype := "cgroup"
	if v2 {
		fstype = "cgroup2"
	}
	if group == "" {
		return Group{}, fmt.Errorf("the process is in no %s cgroup", controller)
	}
	if strings.HasPrefix(group, "/..") {
		return Group{}, errors.New("the container is outside of our cgroup namespace; run with --cgroupns=host")
	}
	for line := range strings.Lines(mountinfo) {
		root, point, ok := parseMount(line, fstype, controller)
		if !ok {
			continue
		}
		// root is which part of the hierarchy is mounted there.
		rel, err := filepath.Rel(root, group)
		if err != nil || strings.HasPrefix(rel, "..") {
			continue
		}
		return Group{Dir: filepath.Join(point, rel), Root: point, V2: v2}, nil
	}
	return Group{}, fmt.Errorf("no %s mount with the %s controller is visible", fstype, controller)
}

// ErrNotMounted means that no hierarchy of the controller is visible.
var ErrNotMounted = errors.New("no control groups are mounted")

// Mounts returns the uppermost visible groups for a controller, as Of chooses the version. The error
// wraps ErrNotMounted where there are none.
func Mounts(proc, controller string) ([]Group, error) {
	mountinfo, err := os.ReadFile(filepath.Join(proc, "self", "mountinfo"))
	if err != nil {
		return nil, err
	}
	for _, fstype := range []string{"cgroup", "cgroup2"} {
		var found []Group
		for line := range strings.Lines(string(mountinfo)) {
			if _, point, ok := parseMount(line, fstype, controller); ok {
				found = append(found, Group{Dir: point, Root: point, V2: fstype == "cgroup2"})
			}
		}
		if found != nil {
			return found, nil
		}
	}
	return nil, fmt.Errorf("%w with the %s controller", ErrNotMounted, controller)
}

// parseMount reads a line of mountinfo if it mounts the controller's hierarchy.
func parseMount(line, fstype, controller string) (root, point string, ok bool) {
	left, right, found := strings.Cut(line, " - ")
	l, r := strings.Fields(left), strings.Fields(right)
	if !found || len(l) < 5 || len(r) < 3 || r[0] != fstype {
		return "", "", false
	}
	if fstype == "cgroup" && !slices.Contains(strings.Split(r[2], ","), controller) {
		return "", "", false
	}
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	return unescape.Replace(l[3]), unescape.Replace(l[4]), true
}
