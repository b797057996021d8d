// Package aside renames unreadable files in their place, so that a damaged file keeps no program
// from starting, and people can still inspect it.
//
// It imports the standard library only.
package aside

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// mark stands between a file's name and the time when it was put aside.
const mark = ".damaged-"

// Damaged says that a file was put aside, and why; it is an error for people.
type Damaged struct {
	Path, To string
	Err      error
}

func (d *Damaged) Error() string {
	return fmt.Sprintf("%s cannot be read (%v): it was put aside as %s, and begins anew", d.Path, d.Err, filepath.Base(d.To))
}

func (d *Damaged) Unwrap() error { return d.Err }

// Put renames the file or folder at path to path.damaged-TIME, and returns a *Damaged that says so.
// If the rename fails, the error says why, and what to do.
func Put(path string, why error) (damaged *Damaged, err error) {
	first := path + mark + time.Now().UTC().Format("20060102T150405.000Z")
	to := first
	for n := 2; ; n++ {
		if _, err := os.Lstat(to); errors.Is(err, fs.ErrNotExist) {
			break
		}
		to = fmt.Sprintf("%s-%d", first, n)
	}
	if err := os.Rename(path, to); err != nil {
		return nil, fmt.Errorf("%s cannot be read (%w), and renaming it failed (move it away, or choose another --state-dir): %w", path, why, err)
	}
	return &Damaged{Path: path, To: to, Err: why}, nil
}

// Of returns the names of what was put aside in place of these files and folders, without their
// paths.
func Of(paths ...string) (names []string) {
	for _, path := range paths {
		for _, name := range List(filepath.Dir(path)) {
			if strings.HasPrefix(name, filepath.Base(path)+mark) {
				names = append(names, name)
			}
		}
	}
	return names
}

// List returns the names of what was put aside in these folders, without their paths.
func List(dirs ...string) (names []string) {
	for _, dir := range dirs {
		entries, _ := os.ReadDir(dir) // what can be read of it
		for _, e := range entries {
			if strings.Contains(e.Name(), mark) {
				names = append(names, e.Name())
			}
		}
	}
	return names
}
