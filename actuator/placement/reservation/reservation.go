// Package reservation keeps what is reserved for containers: on which GPU of which
// node, how much memory, until when. What Apply accepted survives a crash.
//
// It is an adapter of bbolt; of ours it imports actuator/placement, internal/boltfile and exporter/task.
package reservation

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/boltfile"
)

// State is how far a placement has come.
type State string

// The states of a placement, in their order.
const (
	Assumed   State = "assumed"   // promised; nothing is made yet
	Created   State = "created"   // its container is made; no task of it was seen
	Confirmed State = "confirmed" // a task of its container was seen
)

// Entry is one reservation.
type Entry struct {
	ID   string `json:"id"`
	Node string `json:"node"`
	GPU  string `json:"gpu"`
	// Memory is what the container may hold, bytes; 0 is not known.
	Memory uint64 `json:"gpu_memory_bytes,omitempty"`
	// Deadline and Estimate are as in placement.Request.
	Deadline task.Seconds `json:"deadline_seconds,omitempty"`
	Estimate task.Seconds `json:"estimate_seconds,omitempty"`
	Image    string       `json:"image,omitempty"`
	State    State        `json:"state"`
	// Pod is the pod of Kubernetes that it is for; zero for a container in none.
	Pod Pod `json:"pod,omitzero"`
	// Container is the id of the container, once created.
	Container string `json:"container_id,omitempty"`
	// Former is the id of the container of an earlier pod of the same name: Prometheus, which knows
	// pods by their names, may show it for a while.
	Former string    `json:"former_container_id,omitempty"`
	Made   time.Time `json:"made"`
	// Expires is when it ends unless the next state is reached; zero for
	// confirmed ones, which end with their container.
	Expires time.Time `json:"expires,omitzero"`
}

// Pod names a pod of Kubernetes.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// UID tells it from others that had its name.
	UID string `json:"uid"`
}

// SameName reports whether both have the same name in the same namespace. Kubernetes gives a name to
// one pod at a time: of two with different UIDs, one is gone.
func (p Pod) SameName(other Pod) bool {
	return p.Name != "" && p.Name == other.Name && p.Namespace == other.Namespace
}

// String returns namespace/name.
func (p Pod) String() string { return p.Namespace + "/" + p.Name }

// Claim is what the reservation takes of the GPU beside what the container holds
// already, bytes.
func (e Entry) Claim(held uint64) placement.Claim {
	c := placement.Claim{Node: e.Node, GPU: e.GPU}
	if held < e.Memory {
		c.Memory = e.Memory - held
	}
	if e.State != Confirmed {
		c.Work = placement.WorkOf(placement.Request{Deadline: e.Deadline, Estimate: e.Estimate})
	}
	return c
}

// Store is safe for concurrent use.
type Store struct {
	db *bbolt.DB

	mu      sync.RWMutex
	entries map[string]Entry
}

var bucket = []byte("placements")

// Open opens or makes the file. One that cannot be read is put aside, and damaged says so:
// the reservations in it are forgotten. Where the wall clock has been set back, a reservation ends no
// later than if it had been made now.
func Open(path string, now time.Time) (l *Store, damaged, err error) {
	l = &Store{entries: map[string]Entry{}}
	l.db, damaged, err = boltfile.Open(path, func(tx *bbolt.Tx) error {
		clear(l.entries)
		b, err := tx.CreateBucketIfNotExists(bucket)
		if err != nil {
			return err
		}
		return b.ForEach(func(k, v []byte) error {
			var e Entry
			if err := json.Unmarshal(v, &e); err != nil || e.ID != string(k) {
				return fmt.Errorf("placement %q is damaged: %w", k, err)
			}
			l.entries[e.ID] = e.toldAt(now)
			return nil
		})
	})
	if err != nil {
		return nil, damaged, fmt.Errorf("placements (does another actuator use them?): %w", err)
	}
	return l, damaged, nil
}

// toldAt gives what was read from disk the monotonic clock, which now has.
func (e Entry) toldAt(now time.Time) Entry {
	if !e.Expires.IsZero() {
		e.Expires = now.Add(min(e.Expires.Sub(now), e.Expires.Sub(e.Made)))
	}
	e.Made = now.Add(min(0, e.Made.Sub(now)))
	return e
}

// Change is a set of entries to keep, new or changed, and of ids to forget.
type Change struct {
	Keep   []Entry
	Forget []string
}

// Empty reports whether there is nothing to do.
func (c Change) Empty() bool { return len(c.Keep) == 0 && len(c.Forget) == 0 }

// Apply carries out all of the change or nothing. When it returns nil, the
// change is on disk.
func (l *Store) Apply(c Change) error {
	if c.Empty() {
		return nil
	}
	err := l.db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucket)
		for _, e := range c.Keep {
			v, err := json.Marshal(e)
			if err != nil {
				return err
			}
			if err := b.Put([]byte(e.ID), v); err != nil {
				return err
			}
		}
		for _, id := range c.Forget {
			if err := b.Delete([]byte(id)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("write placements (is the disk full?): %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range c.Keep {
		l.entries[e.ID] = e
	}
	for _, id := range c.Forget {
		delete(l.entries, id)
	}
	return nil
}

// List returns the entries, oldest first.
func (l *Store) List() []Entry {
	l.mu.RLock()
	out := slices.Collect(maps.Values(l.entries))
	l.mu.RUnlock()
	slices.SortFunc(out, func(a, b Entry) int { return cmp.Or(a.Made.Compare(b.Made), cmp.Compare(a.ID, b.ID)) })
	return out
}

// Get returns one entry.
func (l *Store) Get(id string) (Entry, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	e, ok := l.entries[id]
	return e, ok
}

// HasPod reports whether something is reserved for a pod of this name.
func (l *Store) HasPod(pod Pod) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, e := range l.entries {
		if e.Pod.SameName(pod) {
			return true
		}
	}
	return false
}

// Close closes the file.
func (l *Store) Close() error { return l.db.Close() }
