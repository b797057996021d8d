// Package libraries records which files of the CUDA driver are in use, and by which
// containers. The sensors that watch such files need it.
//
// It imports exporter/sensor, internal/cudaprobe/cudafile and the standard library.
package libraries

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/internal/cudaprobe/cudafile"
)

// Watcher watches files. Watch must not keep the file: the caller closes it afterwards. After
// an error that wraps cudafile.ErrNotDriver, Watch is never called for this file again. It may be
// called for several files at the same time, but not for the same one.
type Watcher interface {
	Watch(file *cudafile.File) error
	Unwatch(id cudafile.ID)
}

// Registry is this record. It is safe for concurrent use. Discover, Loaded and DiscoverHost read
// files of containers: they hang where a network file system does. No other call waits for them.
type Registry struct {
	finder  cudafile.Finder
	watcher Watcher

	mu    sync.Mutex
	users map[int]map[cudafile.ID]bool // process → its files; 0 is the host
	files map[cudafile.ID]string       // watched → where it was found
	idle  map[cudafile.ID]bool         // watched, and no process used it at the last rescan
	other map[cudafile.ID]bool         // inspected, and not the driver
	// watching are files whose Watch is under way, without mu. The channels are closed at its end.
	watching map[cudafile.ID]chan struct{}

	searches sensor.Calls // of Keep
}

const host = 0

// rescanLimit is how long Keep waits for one search.
const rescanLimit = 5 * time.Second

// maxOther bounds how many files are remembered that are not the driver.
const maxOther = 1024

// New makes an empty registry.
func New(proc string, w Watcher) *Registry {
	return &Registry{
		finder: cudafile.Finder{Proc: proc}, watcher: w,
		users: map[int]map[cudafile.ID]bool{},
		files: map[cudafile.ID]string{},
		idle:  map[cudafile.ID]bool{},
		other: map[cudafile.ID]bool{},

		watching: map[cudafile.ID]chan struct{}{},
		searches: sensor.Calls{Limit: rescanLimit},
	}
}

// Discover finds the files of a process and watches them. They replace those that were known
// of this process.
func (r *Registry) Discover(pid int) error {
	var leased []cudafile.ID
	files, err := r.noting(&leased).Container(pid)
	if err != nil {
		return err
	}
	return r.update(pid, files, leased)
}

// noting is the finder, which notes the files that cannot be opened now.
func (r *Registry) noting(leased *[]cudafile.ID) cudafile.Finder {
	f := r.finder
	f.Leased = func(id cudafile.ID) { *leased = append(*leased, id) }
	return f
}

// Loaded watches the files that a process has loaded, unless all of them are watched already.
// The registry keeps them for this process until it is gone.
func (r *Registry) Loaded(pid int) error {
	var leased []cudafile.ID
	files, err := r.noting(&leased).Mapped(pid)
	if err != nil {
		return err
	}
	switch has, fresh := r.knows(pid, files); {
	case !fresh:
		cudafile.CloseAll(files)
		return nil
	case has: // the files that it may load later count too
		cudafile.CloseAll(files)
		return r.Discover(pid)
	default:
		return r.update(pid, files, leased)
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

// DiscoverHost finds the files of the host and watches them.
func (r *Registry) DiscoverHost() error {
	var leased []cudafile.ID
	files := r.noting(&leased).Host()
	return r.update(host, files, leased)
}

// update replaces what a user has. Of the files that cannot be opened now those that are watched
// stay so: a tenant's lease must not end the watch of a file that others use too.
func (r *Registry) update(user int, files []*cudafile.File, leased []cudafile.ID) error {
	defer cudafile.CloseAll(files)
	var errs []error
	for _, file := range files {
		if err := r.watch(file); err != nil {
			errs = append(errs, err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	uses := map[cudafile.ID]bool{}
	for _, file := range files {
		if _, watched := r.files[file.ID]; watched {
			uses[file.ID] = true
		}
	}
	for _, id := range leased {
		if _, watched := r.files[id]; watched {
			uses[id] = true
		}
	}
	r.users[user] = uses
	return errors.Join(errs...)
}

func (r *Registry) watch(file *cudafile.File) error {
	if !r.begin(file.ID) {
		return nil
	}
	err := r.watcher.Watch(file)
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.watching[file.ID])
	delete(r.watching, file.ID)
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

// begin reports whether a file is to be watched, and was not. It waits while another Watch of the
// file is under way.
func (r *Registry) begin(id cudafile.ID) bool {
	for {
		r.mu.Lock()
		_, watched := r.files[id]
		under := r.watching[id]
		if watched || r.other[id] {
			r.mu.Unlock()
			return false
		}
		if under == nil {
			r.watching[id] = make(chan struct{})
			r.mu.Unlock()
			return true
		}
		r.mu.Unlock()
		<-under
	}
}

// drop stops watching the files that no process uses now, and that none used at the last
// call. The next container of the same image or mount often needs the same file at once, and
// may call CUDA before Discover reaches it.
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

// Release stops watching what only this process needed, once Keep has rescanned twice.
func (r *Registry) Release(pid int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.users, pid)
}

// Paths returns where the watched files were found, in no order.
func (r *Registry) Paths() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var paths []string
	for _, path := range r.files {
		paths = append(paths, path)
	}
	return paths
}

// Keep inspects the host and every process again at this interval until ctx ends: people
// upgrade drivers, and programs load copies that were not there when they began. It releases
// processes that are gone. It logs each trouble once, not at every rescan. It leaves out a process
// whose search hangs, and does not wait for that when ctx ends.
func (r *Registry) Keep(ctx context.Context, every time.Duration, log *slog.Logger) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	var logged map[int]string // trouble, by process
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			logged = r.rescan(ctx, log, logged)
		}
	}
}

// rescan returns the trouble of each process. It does not log again what is in logged.
func (r *Registry) rescan(ctx context.Context, log *slog.Logger, logged map[int]string) map[int]string {
	trouble := map[int]string{}
	note := func(pid int, err error, message string, args ...any) {
		trouble[pid] = err.Error()
		if logged[pid] != trouble[pid] {
			log.Warn(message, append(args, "err", err)...)
		}
	}
	if err := r.searches.Do(ctx, host, r.DiscoverHost); err != nil && ctx.Err() == nil {
		note(host, err, "the host's CUDA driver cannot be watched")
	}
	for _, pid := range r.processes() {
		switch err := r.searches.Do(ctx, pid, func() error { return r.Discover(pid) }); {
		case ctx.Err() != nil:
			return trouble
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
