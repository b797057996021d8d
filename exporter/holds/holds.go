// Package holds reads which processes are held: their channels are off the GPU, and their
// host side runs on. The actuator takes channels off, and keeps a record of each such
// process.
//
// A record is a file whose name ends in .json. Each writer has a folder of its own within one
// root folder. The writer writes the record before the first channel goes off, replaces it by
// a rename, and removes it after the last channel is on again:
//
//	{"pid":123,"start":456,"groups":[{"off":true},{}]}
//
// with a PID of the host, and the process's start as field 22 of /proc/PID/stat has it. The
// process is off while any of its groups is off. The writer may add other fields.
package holds

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// DefaultDir is the default root folder.
const DefaultDir = "/run/laxity/channels"

// Dir is the root folder, with the folders of records. A root that does not exist has no
// records.
type Dir string

const (
	suffix = ".json"
	// tick is the unit of a record's start: USER_HZ, on every architecture that NVIDIA
	// supports.
	tick = 10 * time.Millisecond
	// again is how soon Follow tries a folder again that does not exist or cannot be watched.
	again = time.Second
)

type record struct {
	PID    int    `json:"pid"`
	Start  uint64 `json:"start"`
	Groups []struct {
		Off bool `json:"off"`
	} `json:"groups"`
}

// process is a process that is off.
type process struct {
	pid     int
	started time.Duration
}

// Follow calls report with the processes that are off the GPU, at once and after each change,
// until ctx ends. off has the start of each, since boot, by PID; at is when that was seen. It
// calls report from one goroutine, and once for changes that come together. It calls warn
// once for each series of failures, and once for each record that cannot be read, until it can or is gone. A process whose record cannot be read counts as on.
func (d Dir) Follow(ctx context.Context, report func(off map[int]time.Duration, at time.Time), warn func(error)) {
	f := follower{dir: string(d), report: report, warn: warn, bad: map[string]bool{}}
	for ctx.Err() == nil {
		err := f.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = nil // nothing has been off yet
		}
		f.failed(err)
		f.off = nil
		f.settle(time.Now())
		select {
		case <-ctx.Done():
		case <-time.After(again):
		}
	}
}

// follower is one call of Follow.
type follower struct {
	dir    string
	report func(map[int]time.Duration, time.Time)
	warn   func(error)

	watch    *watch
	folders  map[int32]string   // by watch descriptor
	off      map[string]process // by the record's path
	reported map[int]time.Duration
	first    bool            // report was called
	failing  bool            // the last try to follow failed
	bad      map[string]bool // the paths of the records that cannot be read, each of which was warned about
}

// errGone: the root folder was removed.
var errGone = fmt.Errorf("the folder of the records of held processes: %w", fs.ErrNotExist)

// follow works until something fails.
func (f *follower) follow(ctx context.Context) (err error) {
	w, err := openWatch()
	if err != nil {
		return err
	}
	f.watch, f.folders = w, map[int32]string{}
	stop := context.AfterFunc(ctx, func() { _ = w.Close() })
	defer func() {
		if stop() {
			err = errors.Join(err, w.Close())
		}
	}()
	if err := w.addRoot(f.dir); err != nil {
		return err
	}
	if err := f.scan(); err != nil {
		return err
	}
	f.settle(time.Now())
	for {
		events, err := w.read()
		if err != nil {
			return err
		}
		at := time.Now()
		for _, e := range events {
			if err := f.take(e); err != nil {
				return err
			}
		}
		f.settle(at)
	}
}

// take handles one event.
func (f *follower) take(e event) error {
	folder, known := f.folders[e.watch]
	switch {
	case e.gone && known:
		delete(f.folders, e.watch)
		maps.DeleteFunc(f.off, func(path string, _ process) bool { return filepath.Dir(path) == folder })
		maps.DeleteFunc(f.bad, func(path string, _ bool) bool { return filepath.Dir(path) == folder })
		return nil
	case e.gone && e.watch == f.watch.root:
		return errGone
	case !known: // of the root, or events were lost
		return f.scan()
	case strings.HasSuffix(e.name, suffix):
		f.inspect(filepath.Join(folder, e.name))
	}
	return nil
}

// scan reads all records anew.
func (f *follower) scan() error {
	f.off, f.failing = map[string]process{}, false
	there := map[string]bool{}
	folders, err := os.ReadDir(f.dir)
	if err != nil {
		return fmt.Errorf("read the records of held processes: %w", err)
	}
	for _, d := range folders {
		if !d.IsDir() {
			continue
		}
		folder := filepath.Join(f.dir, d.Name())
		id, err := f.watch.addFolder(folder) // before it is read, so that no change is missed
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		f.folders[id] = folder
		records, err := os.ReadDir(folder)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("read the records of held processes: %w", err)
		}
		for _, r := range records {
			if strings.HasSuffix(r.Name(), suffix) {
				path := filepath.Join(folder, r.Name())
				there[path] = true
				f.inspect(path)
			}
		}
	}
	maps.DeleteFunc(f.bad, func(path string, _ bool) bool { return !there[path] })
	return nil
}

// inspect reads one record.
func (f *follower) inspect(path string) {
	delete(f.off, path)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		delete(f.bad, path)
		return
	}
	var r record
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err == nil && (r.PID <= 0 || r.Start > math.MaxInt64/uint64(tick)) {
		err = errors.New("it names no process")
	}
	if err != nil {
		if !f.bad[path] {
			f.bad[path] = true
			f.warn(fmt.Errorf("a record of a held process, %s: %w", path, err))
		}
		return
	}
	delete(f.bad, path)
	for _, g := range r.Groups {
		if g.Off {
			f.off[path] = process{r.PID, time.Duration(r.Start) * tick} //nolint:gosec // see above
			return
		}
	}
}

// settle reports changes. Of two processes with one PID the older one has ended.
func (f *follower) settle(at time.Time) {
	off := map[int]time.Duration{}
	for _, p := range f.off {
		off[p.pid] = max(off[p.pid], p.started)
	}
	if f.first && maps.Equal(off, f.reported) {
		return
	}
	f.reported, f.first = off, true
	f.report(off, at)
}

// failed warns once until following works again.
func (f *follower) failed(err error) {
	if err != nil && !f.failing {
		f.warn(err)
	}
	f.failing = err != nil
}
