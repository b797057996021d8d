package docker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Kernel reads the kernel's freezer: cgroup.events of cgroup v2, freezer.state
// of v1. It never writes there: that would leave the engine with a wrong idea.
type Kernel struct {
	// Proc is where procfs of the host is mounted.
	Proc string
}

// Frozen implements Freezer.
func (k Kernel) Frozen(pid int) (bool, error) {
	cgroup, err := os.ReadFile(filepath.Join(k.Proc, strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return false, err
	}
	mounts, err := os.ReadFile(filepath.Join(k.Proc, "self", "mountinfo"))
	if err != nil {
		return false, err
	}
	path, v2, err := freezerFile(string(cgroup), string(mounts))
	if err != nil {
		return false, err
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	if v2 {
		return slices.Contains(strings.Split(string(b), "\n"), "frozen 1"), nil
	}
	return strings.TrimSpace(string(b)) == "FROZEN", nil
}

// freezerFile finds the file that tells the freezer's state. On a machine that
// mounts both versions the v1 freezer counts, if there is one: that is what the
// engine uses there.
func freezerFile(cgroup, mountinfo string) (path string, v2 bool, err error) {
	var v1Path, v2Path string
	for line := range strings.Lines(cgroup) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(f) != 3:
		case slices.Contains(strings.Split(f[1], ","), "freezer"):
			v1Path = f[2]
		case f[0] == "0" && f[1] == "":
			v2Path = f[2]
		}
	}
	name, fstype, group := "freezer.state", "cgroup", v1Path
	if v1Path == "" {
		v2, name, fstype, group = true, "cgroup.events", "cgroup2", v2Path
	}
	if group == "" {
		return "", false, errors.New("the process is in no freezer cgroup")
	}
	if strings.HasPrefix(group, "/..") {
		return "", false, errors.New("the container is outside of our cgroup namespace; run with --cgroupns=host")
	}
	for line := range strings.Lines(mountinfo) {
		root, point, ok := parseMount(line, fstype)
		if !ok {
			continue
		}
		// root is which part of the hierarchy is mounted there.
		rel, err := filepath.Rel(root, group)
		if err != nil || strings.HasPrefix(rel, "..") {
			continue
		}
		return filepath.Join(point, rel, name), v2, nil
	}
	return "", false, fmt.Errorf("no %s mount with the freezer is visible", fstype)
}

// parseMount reads a line of mountinfo if it mounts the freezer's hierarchy.
func parseMount(line, fstype string) (root, point string, ok bool) {
	left, right, found := strings.Cut(line, " - ")
	l, r := strings.Fields(left), strings.Fields(right)
	if !found || len(l) < 5 || len(r) < 3 || r[0] != fstype {
		return "", "", false
	}
	if fstype == "cgroup" && !slices.Contains(strings.Split(r[2], ","), "freezer") {
		return "", "", false
	}
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	return unescape.Replace(l[3]), unescape.Replace(l[4]), true
}
