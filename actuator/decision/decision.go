// Package decision is the record of what the actuator decided and why: the last
// ones in memory, for /api/v1/decisions and `laxity why`, and all of them in a
// bounded file.
//
// It imports internal/aside and the standard library only.
package decision

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/laxity/laxity/internal/aside"
)

// Kind is what was decided about.
type Kind string

// The kinds.
const (
	Alert   Kind = "alert"   // what became of an alert
	Lease   Kind = "lease"   // a lease closed
	Pause   Kind = "pause"   // a container was to be paused
	Unpause Kind = "unpause" // a container was to be let go
	Hold    Kind = "hold"    // a hold ended without our unpausing
	Request Kind = "request" // what became of what a person asked for
	Service Kind = "service" // about the actuator itself
	Memory  Kind = "memory"  // an allocation of GPU memory, or what was lent of it
	Order   Kind = "order"   // who comes first on a GPU, by slices and by channels off and on
	SwapOut Kind = "swap-out"
	SwapIn  Kind = "swap-in"
)

// Result is how it came out.
type Result string

// The results.
const (
	Done    Result = "done"
	Failed  Result = "failed"
	DryRun  Result = "dry-run" // it would have been done
	Ignored Result = "ignored"
	Opened  Result = "opened"
	Renewed Result = "renewed"
	Closed  Result = "closed"
	Kept    Result = "kept"
	// Forwarded: passed on to the actuator of the node that it is about.
	Forwarded Result = "forwarded"
	// Of an allocation: it waits, waited and went on, or was denied.
	Waiting Result = "waiting"
	Granted Result = "granted"
	Denied  Result = "denied"
)

// Decision is one entry. Sequence starts anew with the actuator.
type Decision struct {
	Sequence uint64    `json:"sequence"`
	Time     time.Time `json:"time"`
	Kind     Kind      `json:"kind"`
	Result   Result    `json:"result"`
	// Reason is a sentence for people.
	Reason string `json:"reason"`
	Node   string `json:"node,omitempty"`
	Policy string `json:"policy,omitempty"`
	// Container is its name, ContainerID its full id.
	Container   string   `json:"container,omitempty"`
	ContainerID string   `json:"container_id,omitempty"`
	GPUs        []string `json:"gpus,omitempty"`
	Tasks       []string `json:"tasks,omitempty"`
	// Cause of a pause or unpause: arbitrate, relieve, pause or memory; of a decision
	// about memory the kind of reason.
	Cause string `json:"cause,omitempty"`
	// By says who asked for it, where a person did.
	By string `json:"by,omitempty"`
	// Alert, Status and Fingerprint are of the alert that was decided about.
	Alert       string `json:"alert,omitempty"`
	Status      string `json:"status,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty"`
	// Snapshot is the sequence of the snapshot on which it rests.
	Snapshot uint64 `json:"snapshot_sequence,omitempty"`
	// Seconds is how long carrying it out took.
	Seconds float64 `json:"seconds,omitempty"`
	// Bytes is how much memory was asked for, or swapped.
	Bytes uint64 `json:"bytes,omitempty"`
	Error string `json:"error,omitempty"`
}

// About reports whether the decision is about the container with this name or id;
// a prefix of the id of at least 12 digits will do.
func (d Decision) About(container string) bool {
	return d.Container == container || d.ContainerID == container ||
		(len(container) >= 12 && strings.HasPrefix(d.ContainerID, container))
}

// Options of a Log.
type Options struct {
	// Keep is how many are kept in memory; 1000 by default.
	Keep int
	// Path of the file; none if empty. MaxBytes bounds it (and one predecessor,
	// PATH.1); 8 MiB by default.
	Path     string
	MaxBytes int64
}

// Log is safe for concurrent use.
type Log struct {
	o Options

	mu      sync.Mutex
	last    uint64
	ring    []Decision // oldest first
	file    *os.File
	size    int64
	broken  error
	changed chan struct{} // closed and replaced by each Add
}

// Open opens the file for appending. Where that cannot be done what is there is put aside.
func Open(o Options) (*Log, error) {
	if o.Keep <= 0 {
		o.Keep = 1000
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = 8 << 20
	}
	l := &Log{o: o, changed: make(chan struct{})}
	err := l.open()
	if err == nil {
		return l, nil
	}
	if _, aerr := aside.Put(o.Path, err); aerr != nil {
		return nil, aerr
	}
	return l, l.open()
}

func (l *Log) open() error {
	if l.o.Path == "" {
		return nil
	}
	f, err := os.OpenFile(l.o.Path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("decisions file: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(fmt.Errorf("decisions file: %w", err), f.Close())
	}
	l.file, l.size = f, info.Size()
	return nil
}

// Add numbers the decision and keeps it. A file that cannot be written does not
// stop anything: Err tells of it.
func (l *Log) Add(d Decision) Decision {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	d.Sequence = l.last
	if len(l.ring) >= l.o.Keep {
		l.ring = append(l.ring[:0:0], l.ring[len(l.ring)-l.o.Keep+1:]...)
	}
	l.ring = append(l.ring, d)
	l.write(d)
	close(l.changed)
	l.changed = make(chan struct{})
	return d
}

func (l *Log) write(d Decision) {
	if l.o.Path == "" {
		return
	}
	line, err := json.Marshal(d)
	if err == nil && l.file != nil && l.size+int64(len(line)) > l.o.MaxBytes {
		err = errors.Join(l.file.Close(), os.Rename(l.o.Path, l.o.Path+".1"))
		l.file = nil
	}
	if err == nil && l.file == nil {
		err = l.open()
	}
	if err == nil {
		var n int
		n, err = l.file.Write(append(line, '\n'))
		l.size += int64(n)
	}
	l.broken = err
}

// Err says why the last decision is not in the file; nil if it is.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broken
}

// Last returns the decisions after the given sequence, oldest first, and a
// channel that is closed by the next one.
func (l *Log) Last(after uint64) ([]Decision, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := 0
	for i < len(l.ring) && l.ring[i].Sequence <= after {
		i++
	}
	return append([]Decision(nil), l.ring[i:]...), l.changed
}

// Watch sends every decision that is made from now on, and before them those
// kept after the given sequence, until ctx ends; then it closes the channel. A
// reader that is slower than the memory is long misses some: sequences tell.
func (l *Log) Watch(ctx context.Context, after uint64) <-chan Decision {
	out := make(chan Decision)
	go func() {
		defer close(out)
		for {
			ds, changed := l.Last(after)
			for _, d := range ds {
				select {
				case out <- d:
					after = d.Sequence
				case <-ctx.Done():
					return
				}
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// Close closes the file.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	l.o.Path = ""
	return err
}
