package containertest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/laxity/laxity/exporter/container"
)

// Fake is a container.Source in memory. Its containers are changed by Put,
// SetPaused, Rename, Stop and Remove, and every change makes the event that an
// engine would send. The zero Fake is ready, and safe for concurrent use.
type Fake struct {
	// Now stamps events; nil means time.Now. Set it before the first use.
	Now func() time.Time

	mu         sync.Mutex
	containers []container.Container // running or paused, in order of start
	names      map[string]string     // id → name, of those that have stopped too
	watchers   map[*watcher]struct{}
	err        error
}

var _ container.Source = (*Fake)(nil)

// ID makes a container id, 64 hex digits, the same one for the same name.
func ID(name string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(name))) }

// Fail makes List and Watch return this error, wrapped with
// container.ErrUnavailable, and breaks every stream; nil ends that.
func (f *Fake) Fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = nil
	if err != nil {
		f.err = fmt.Errorf("%w: %w", container.ErrUnavailable, err)
		f.breakAll()
	}
}

// Break breaks every stream, as a restart of the engine does.
func (f *Fake) Break() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.breakAll()
}

func (f *Fake) breakAll() {
	for w := range f.watchers {
		w.close()
	}
	clear(f.watchers)
}

// Put starts a container. Without an ID it gets the one of its name, without a
// start time it starts now.
func (f *Fake) Put(c container.Container) container.Container {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c.ID == "" {
		c.ID = ID(c.Name)
	}
	if c.Started.IsZero() {
		c.Started = f.now()
	}
	f.containers = append(f.containers, c)
	if f.names == nil {
		f.names = map[string]string{}
	}
	f.names[c.ID] = c.Name
	f.send(container.Started, c.ID, &c)
	return c
}

// SetPaused pauses or unpauses a container; one that is so already stays so.
func (f *Fake) SetPaused(id string, paused bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := f.index(id)
	if i < 0 || f.containers[i].Paused == paused {
		return
	}
	f.containers[i].Paused = paused
	kind := container.Unpaused
	if paused {
		kind = container.Paused
	}
	f.send(kind, id, nil)
}

// Rename gives a running or paused container a new name.
func (f *Fake) Rename(id, name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := f.index(id)
	if i < 0 {
		return
	}
	f.containers[i].Name, f.names[id] = name, name
	c := f.containers[i]
	f.send(container.Renamed, id, &c)
}

// Stop ends a container. It is not listed any more.
func (f *Fake) Stop(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stop(id)
}

func (f *Fake) stop(id string) {
	i := f.index(id)
	if i < 0 {
		return
	}
	f.containers = slices.Delete(f.containers, i, i+1)
	f.send(container.Died, id, nil)
}

// Remove takes a container away, and ends it before if need be.
func (f *Fake) Remove(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stop(id)
	if _, ok := f.names[id]; ok {
		delete(f.names, id)
		f.send(container.Removed, id, nil)
	}
}

// List implements container.Source.
func (f *Fake) List(ctx context.Context) ([]container.Container, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if f.err != nil {
		return nil, f.err
	}
	return slices.Clone(f.containers), nil
}

// Watch implements container.Source. A slow reader loses nothing and holds
// nobody up.
func (f *Fake) Watch(ctx context.Context) (<-chan container.Event, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if f.err != nil {
		return nil, f.err
	}
	w := newWatcher()
	if f.watchers == nil {
		f.watchers = map[*watcher]struct{}{}
	}
	f.watchers[w] = struct{}{}
	go func() {
		w.run(ctx)
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.watchers, w)
	}()
	return w.out, nil
}

func (f *Fake) send(kind container.EventKind, id string, c *container.Container) {
	e := container.Event{Kind: kind, ID: id, Time: f.now(), Container: c}
	for w := range f.watchers {
		w.push(e)
	}
}

func (f *Fake) index(id string) int {
	return slices.IndexFunc(f.containers, func(c container.Container) bool { return c.ID == id })
}

func (f *Fake) now() time.Time {
	if f.Now != nil {
		return f.Now()
	}
	return time.Now()
}

// watcher is one stream: an endless queue between the fake and one reader.
type watcher struct {
	out    chan container.Event
	wake   chan struct{}
	mu     sync.Mutex
	queue  []container.Event
	closed bool
}

func newWatcher() *watcher {
	return &watcher{out: make(chan container.Event), wake: make(chan struct{}, 1)}
}

func (w *watcher) push(e container.Event) {
	w.mu.Lock()
	w.queue = append(w.queue, e)
	w.mu.Unlock()
	w.signal()
}

func (w *watcher) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.signal()
}

func (w *watcher) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *watcher) run(ctx context.Context) {
	defer close(w.out)
	for {
		w.mu.Lock()
		batch, closed := w.queue, w.closed
		w.queue = nil
		w.mu.Unlock()
		for _, e := range batch {
			select {
			case w.out <- e:
			case <-ctx.Done():
				return
			}
		}
		if closed {
			return
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			return
		}
	}
}
