// Package journal records which containers Laxity paused: one small JSON file for each,
// written before the container stops and removed after it continues. The package also has the
// two lock files by which actuator and guardian notice each other's death.
//
// It imports the standard library, actuator/record, internal/aside and internal/replace only, so
// that the guardian, which must work when everything else has failed, stays small.
package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/laxity/laxity/actuator/record"
	"github.com/laxity/laxity/internal/aside"
	"github.com/laxity/laxity/internal/replace"
)

// Journal is a folder of holds. Its methods may be used by several goroutines
// and by two processes (actuator and guardian), because each change is one
// rename or one unlink.
type Journal struct {
	dir     string
	trouble error
	// removing is held for reading by a Remove, for writing by the last step of a Renew.
	removing sync.RWMutex
}

// safeID keeps a container id from naming a file outside the folder.
var safeID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$`)

const suffix = ".json"

// ErrNotWritable means that the folder of holds cannot be changed: no record can be added. Where
// the disk is full, records can still be removed.
var ErrNotWritable = errors.New("the record of holds cannot be written")

// Open makes the folder STATEDIR/holds if it is missing. A folder that can be listed stays, also
// where it cannot be written: containers are released by what is in it, and Trouble says that no
// record can be added. Something else in its place is put aside. Holds in folders that were put
// aside, now or formerly, are on record again, unless the machine was booted since.
func Open(stateDir string) (*Journal, error) { return open(stateDir, booted(time.Now())) }

func open(stateDir string, booted time.Time) (*Journal, error) {
	dir := filepath.Join(stateDir, "holds")
	j := &Journal{dir: dir}
	why := usable(dir)
	if why == nil {
		j.trouble = j.takeOver(booted)
		return j, nil
	}
	if _, err := os.Lstat(dir); err != nil {
		return nil, fmt.Errorf("make the holds journal (choose a writable --state-dir): %w", why)
	}
	if !damaged(dir) {
		j.trouble = errors.Join(fmt.Errorf("%w: %w", ErrNotWritable, why), j.takeOver(booted))
		return j, nil
	}
	moved, err := aside.Put(dir, why)
	if err != nil {
		if s, serr := os.Stat(dir); serr != nil || !s.IsDir() {
			return nil, err
		}
		j.trouble = fmt.Errorf("%w: %w", ErrNotWritable, err)
		return j, nil
	}
	if err := usable(dir); err != nil {
		return nil, fmt.Errorf("make the holds journal (choose a writable --state-dir): %w", err)
	}
	j.trouble = errors.Join(moved, j.takeOver(booted))
	return j, nil
}

// usable makes the folder if it is missing, and tries to write there.
func usable(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".tmp-*")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// damaged reports whether there is no folder at dir whose records can be listed. To put away one
// that can be listed would lose its records where the disk is full: the next one cannot be made.
func damaged(dir string) bool {
	_, err := os.ReadDir(dir)
	for _, passing := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM} {
		if errors.Is(err, passing) {
			return false
		}
	}
	return err != nil
}

// booted is when this machine was booted, by the wall clock of now; zero where that is not known.
func booted(now time.Time) time.Time {
	var info syscall.Sysinfo_t
	if err := syscall.Sysinfo(&info); err != nil {
		return time.Time{}
	}
	return now.Add(-time.Duration(info.Uptime) * time.Second)
}

// takeOver puts on record the holds of all folders that were put aside. The name of a record that
// cannot be read is enough to release its container.
func (j *Journal) takeOver(booted time.Time) error {
	var errs []error
	for _, name := range aside.Of(j.dir) {
		from := filepath.Join(filepath.Dir(j.dir), name)
		if s, err := os.Stat(from); err != nil || !s.IsDir() {
			continue // a file that was in place of the folder
		}
		errs = append(errs, j.takeOverFrom(from, booted))
	}
	return errors.Join(errs...)
}

// takeOverFrom moves records: a rename succeeds on a full disk, and a record that stayed would
// come back at the next Open, when a person may have paused its container. A hold that is on
// record already is the newer one. One from before the boot is deleted: no freeze survives that, and
// version 0.2.0 left such records where they are. An old one from after it may be all that is known
// of a container that is still frozen.
func (j *Journal) takeOverFrom(dir string, booted time.Time) error {
	holds, err := (&Journal{dir: dir}).List()
	errs := []error{err}
	for _, h := range holds {
		from, to := filepath.Join(dir, h.ContainerID+suffix), filepath.Join(j.dir, h.ContainerID+suffix)
		if _, err := os.Lstat(to); err == nil || written(from, h).Before(booted.Add(-clockError)) {
			errs = append(errs, os.RemoveAll(from))
			continue
		}
		if err := os.Rename(from, to); !errors.Is(err, fs.ErrNotExist) { // another process was faster
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// clockError is how far the wall clock may have been off when a hold was recorded.
const clockError = time.Hour

// written is when a hold was recorded; by its file's time where the record cannot be read.
func written(path string, h record.Hold) time.Time {
	if s, err := os.Lstat(path); h.Since.IsZero() && err == nil {
		return s.ModTime()
	}
	return h.Since
}

// Trouble returns what was wrong with the folder when it was opened, or nil.
func (j *Journal) Trouble() error { return j.trouble }

func (j *Journal) path(id string) (string, error) {
	if !safeID.MatchString(id) {
		return "", fmt.Errorf("journal: %q is not a container id", id)
	}
	return filepath.Join(j.dir, id+suffix), nil
}

// Put writes or replaces a hold. When it returns nil the record survives a
// crash of this process and of the machine.
func (j *Journal) Put(h record.Hold) error {
	path, err := j.path(h.ContainerID)
	if err != nil {
		return err
	}
	b, err := json.Marshal(h)
	if err != nil {
		return err
	}
	return replace.File(path, append(b, '\n'), 0o600)
}

// Renew replaces a hold that is on record, as Put does. It reports false, and writes
// nothing, when there is none: a Remove of this process at the same moment prevails.
func (j *Journal) Renew(h record.Hold) (renewed bool, err error) {
	path, err := j.path(h.ContainerID)
	if err != nil {
		return false, err
	}
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	b, err := json.Marshal(h)
	if err != nil {
		return false, err
	}
	err = replace.FileBy(path, append(b, '\n'), 0o600, func(rename func() error) error {
		j.removing.Lock()
		defer j.removing.Unlock()
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			return errRemoved
		}
		return rename()
	})
	if errors.Is(err, errRemoved) {
		return false, nil
	}
	return err == nil, err
}

// errRemoved: the record to renew was removed meanwhile.
var errRemoved = errors.New("removed meanwhile")

// Remove deletes a hold's record. It is idempotent.
func (j *Journal) Remove(id string) error {
	path, err := j.path(id)
	if err != nil {
		return err
	}
	j.removing.RLock()
	defer j.removing.RUnlock()
	// Another program may have made a folder of this name.
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("journal: %w: %w", ErrNotWritable, err)
	}
	// Not synced: a record that reappears after a power cut names a container that runs, and
	// releasing it again does nothing.
	return nil
}

// Get returns the hold of one container.
func (j *Journal) Get(id string) (record.Hold, bool, error) {
	path, err := j.path(id)
	if err != nil {
		return record.Hold{}, false, err
	}
	h, err := read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return record.Hold{}, false, nil
	}
	return h, err == nil, err
}

// List returns every hold, oldest first. A record that cannot be read is
// returned all the same, with the id that its file name gives and expired long
// since: the name alone is enough to release the container.
func (j *Journal) List() ([]record.Hold, error) {
	entries, err := os.ReadDir(j.dir)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	var holds []record.Hold
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), suffix)
		if !ok || !safeID.MatchString(id) {
			continue
		}
		h, err := read(filepath.Join(j.dir, e.Name()))
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed since ReadDir
			continue
		case err != nil || h.ContainerID != id:
			h = record.Hold{ContainerID: id, Container: id, Reason: fmt.Sprintf("record cannot be read: %v", err)}
		}
		holds = append(holds, h)
	}
	slices.SortStableFunc(holds, func(a, b record.Hold) int { return a.Since.Compare(b.Since) })
	return holds, nil
}

func read(path string) (record.Hold, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return record.Hold{}, err
	}
	var h record.Hold
	err = json.Unmarshal(b, &h)
	return h, err
}
