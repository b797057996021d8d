// Package libraries keeps account of which files of the CUDA driver are in use,
// and by which containers, for the sensors that watch such files.
//
// It imports internal/cudaprobe/cudafile and the standard library.
package libraries

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/laxity/laxity/internal/cudaprobe/cudafile"
)

// Watcher begins and ends to watch one file. Watch must not keep the file, which
// is closed afterwards. An error of Watch that wraps cudafile.ErrNotDriver is for
// ever: the file is not offered again.
type Watcher interface {
	Watch(file *cudafile.File) error
	Unwatch(id cudafile.ID)
}

// Registry is the account. It is safe for concurrent use.
type Registry struct {
	finder  cudafile.Finder
	watcher Watcher

	mu    sync.Mutex
	users map[int]map[cudafile.ID]bool // process → its files; 0 is the host
	files map[cudafile.ID]string       // watched → where it was found
	idle  map[cudafile.ID]bool         // watched, and nobody used it at the last rescan
	other map[cudafile.ID]bool         // looked at, and not the driver
}

const host = 0

// maxOther bounds what is remembered of files that are not the driver.
const maxOther = 1024

// New makes an empty account.
func New(proc string, w Watcher) *Registry {
	return &Registry{
		finder: cudafile.Finder{Proc: proc}, watcher: w,
		users: map[int]map[cudafile.ID]bool{},
		files: map[cudafile.ID]string{},
		idle:  map[cudafile.ID]bool{},
		other: map[cudafile.ID]bool{},
	}
}

// Discover looks for the files of a process and watches them. It replaces what
// was known of this process.
func (r *Registry) Discover(pid int) error {
	files, err := r.finder.Container(pid)
	if err != nil {
		return err
	}
	return r.update(pid, files)
}

// Loaded watches the files that a process has loaded, if there are any that are not
// watched. Then they are kept for this process too, until it is gone.
func (r *Registry) Loaded(pid int) error {
	files, err := r.finder.Mapped(pid)
	if err != nil {
		return err
	}
	switch has, fresh := r.knows(pid, files); {
	case !fresh:
		cudafile.CloseAll(files)
		return nil
	case has: // what it may come to load counts too
		cudafile.CloseAll(files)
		return r.Discover(pid)
	default:
		return r.update(pid, files)
	}
}

// knows reports whether files are kept for a process, and whether any of these is new.
func (r *Registry) knows(pid int, files []*cudafile.File) (has, fresh bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, file := range files {
		_, watched := r.files[file.ID]
		fresh = fresh || !watched && !r.other[file.ID]
	}
	return r.users[pid] != nil, fresh
}

// DiscoverHost looks for the files of the host.
func (r *Registry) DiscoverHost() error { return r.update(host, r.finder.Host()) }

func (r *Registry) update(user int, files []*cudafile.File) error {
	defer cudafile.CloseAll(files)
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	uses := map[cudafile.ID]bool{}
	for _, file := range files {
		if err := r.watch(file); err != nil {
			errs = append(errs, err)
		} else if _, watched := r.files[file.ID]; watched {
			uses[file.ID] = true
		}
	}
	r.users[user] = uses
	return errors.Join(errs...)
}

func (r *Registry) watch(file *cudafile.File) error {
	if _, watched := r.files[file.ID]; watched || r.other[file.ID] {
		return nil
	}
	err := r.watcher.Watch(file)
	switch {
	case errors.Is(err, cudafile.ErrNotDriver):
		if len(r.other) >= maxOther {
			clear(r.other)
		}
		r.other[file.ID] = true
		return nil
	case err != nil:
		return err
	}
	r.files[file.ID] = file.Path
	return nil
}

// drop lets go of files that nobody uses and nobody used when it was last called.
// The same file is often needed again at once, by the next container of an image
// or with the same mount, which may call CUDA before Discover has come to it.
func (r *Registry) drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range r.files {
		switch {
		case r.used(id):
			delete(r.idle, id)
		case !r.idle[id]:
			r.idle[id] = true
		default:
			r.watcher.Unwatch(id)
			delete(r.files, id)
			delete(r.idle, id)
		}
	}
}

func (r *Registry) used(id cudafile.ID) bool {
	for _, uses := range r.users {
		if uses[id] {
			return true
		}
	}
	return false
}

// Release ends what only this process needed, once Keep has looked twice.
func (r *Registry) Release(pid int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.users, pid)
}

// Paths tells where the watched files were found, in no order.
func (r *Registry) Paths() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var paths []string
	for _, path := range r.files {
		paths = append(paths, path)
	}
	return paths
}

// Keep looks again at the host and at every process now and then, until ctx
// ends: drivers are upgraded, and programs load copies that were not there when
// they began. Processes that are gone are released. The log gets one line for each
// trouble, not one each time.
func (r *Registry) Keep(ctx context.Context, every time.Duration, log *slog.Logger) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	var logged map[int]string // trouble, by process
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			logged = r.rescan(log, logged)
		}
	}
}

// rescan returns the trouble of each process, of which logged was told before.
func (r *Registry) rescan(log *slog.Logger, logged map[int]string) map[int]string {
	trouble := map[int]string{}
	note := func(pid int, err error, message string, args ...any) {
		trouble[pid] = err.Error()
		if logged[pid] != trouble[pid] {
			log.Warn(message, append(args, "err", err)...)
		}
	}
	if err := r.DiscoverHost(); err != nil {
		note(host, err, "the host's CUDA driver cannot be watched")
	}
	for _, pid := range r.processes() {
		switch err := r.Discover(pid); {
		case errors.Is(err, os.ErrNotExist):
			r.Release(pid)
		case err != nil:
			note(pid, err, "a container's CUDA driver cannot be watched", "pid", pid)
		}
	}
	r.drop()
	return trouble
}

func (r *Registry) processes() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	var pids []int
	for pid := range r.users {
		if pid != host {
			pids = append(pids, pid)
		}
	}
	return pids
}
