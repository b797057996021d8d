// Package lease keeps what alerts and persons ask for, and for how long. An alert or a person opens a
// lease. A container that a person released is exempt for its present tasks.
//
// Pure: it imports the standard library only, and reads neither clock nor disk.
package lease

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Wish is what an alert asks for.
type Wish string

// The wishes that are understood.
const (
	Arbitrate Wish = "arbitrate" // of a GPU: let the policy decide who runs
	Relieve   Wish = "relieve"   // of a GPU: stop the last admitted one
	Pause     Wish = "pause"     // of a container: stop it
	Drain     Wish = "drain"     // of the node: no new placements
	Expedite  Wish = "expedite"  // of a container: its task to the front
)

// Lease is a wish with an end. A firing alert opens or renews it; it closes when
// the alert is resolved and the snapshot confirms it, or when it is over.
type Lease struct {
	Wish Wish `json:"wish"`
	// Target is a GPU's UUID, a container's name or id, or the node.
	Target string `json:"target"`
	// Alert is its name, Fingerprint what identifies it at the sender.
	Alert       string    `json:"alert"`
	Fingerprint string    `json:"fingerprint"`
	StartsAt    time.Time `json:"starts_at"`
	Opened      time.Time `json:"opened"`
	// Renewed is when it was last asked for.
	Renewed time.Time `json:"renewed"`
	Expires time.Time `json:"expires"`
	// Resolved: the sender says that it is over. The lease lasts until the snapshot confirms that, or
	// to its end. ResolvedAt is when the resolve was received.
	Resolved   bool      `json:"resolved,omitempty"`
	ResolvedAt time.Time `json:"resolved_at,omitzero"`
	// By is the person who asked for it; Alert is empty then.
	By string `json:"by,omitempty"`
	// Why is the reason where the sender gives one; a sentence for people.
	Why string `json:"why,omitempty"`
}

// Asks says who asks for it; a sentence for people.
func (l Lease) Asks() string {
	if l.Why != "" {
		return l.Why
	}
	if l.By != "" {
		return l.By + " asks for it"
	}
	return "alert " + l.Alert + " asks for it"
}

// Exemption keeps a container from being held as long as these tasks last, or,
// without tasks, for as long as it is being asked for.
type Exemption struct {
	ContainerID string    `json:"container_id"`
	Tasks       []string  `json:"tasks,omitempty"`
	Reason      string    `json:"reason"`
	Since       time.Time `json:"since"`
}

// tombstone remembers an alert that was resolved, so that a late repeat of its
// firing does not open it again.
type tombstone struct {
	StartsAt time.Time `json:"starts_at"`
	At       time.Time `json:"at"`
}

// repeatsLate is how long after a resolve a firing with the same StartsAt counts as a repeat, from a
// second Alertmanager or a delivery that was tried again. After that it fires again: Alertmanager
// resolves an alert that Prometheus could not renew in time, and sends the same StartsAt when it
// fires again.
const repeatsLate = 2 * time.Minute

// ends reports whether the firing is a late repeat of a resolved alert.
func (t tombstone) ends(firing Lease) bool {
	return !firing.StartsAt.After(t.StartsAt) && firing.Opened.Sub(t.At) < repeatsLate
}

// maxTombstones bounds how many are remembered.
const maxTombstones = 4096

// Book holds the leases and exemptions. It survives a restart by Encode and Decode: its owner
// writes it before the alert that changed it leaves the inbox. It is used by one goroutine.
type Book struct {
	changed, lapsed bool
	d               bookData
}

type bookData struct {
	Leases     map[string]Lease     `json:"leases"`
	Exempt     map[string]Exemption `json:"exempt"`
	Tombstones map[string]tombstone `json:"tombstones"`
}

// New returns an empty book.
func New() *Book {
	return &Book{d: bookData{Leases: map[string]Lease{}, Exempt: map[string]Exemption{}, Tombstones: map[string]tombstone{}}}
}

// Decode returns the book that Encode encoded. If the wall clock was set back since, times after now
// count as now.
func Decode(raw []byte, now time.Time) (*Book, error) {
	b := New()
	if err := json.Unmarshal(raw, &b.d); err != nil {
		return New(), fmt.Errorf("the leases cannot be read: %w", err)
	}
	if b.d.Leases == nil {
		b.d.Leases = map[string]Lease{}
	}
	if b.d.Exempt == nil {
		b.d.Exempt = map[string]Exemption{}
	}
	if b.d.Tombstones == nil {
		b.d.Tombstones = map[string]tombstone{}
	}
	b.d.readAt(now)
	return b, nil
}

// Encode returns what Decode reads.
func (b *Book) Encode() ([]byte, error) { return json.Marshal(b.d) }

// Changed reports whether something is asked for, resolved or exempt since Written was last called:
// the disk lacks it.
func (b *Book) Changed() bool { return b.changed }

// Lapsed reports whether something ended since then: the disk still has it. Whoever reads it after a
// crash finds the same reasons to end it, so there is no hurry to write that.
func (b *Book) Lapsed() bool { return b.lapsed }

// Written says that what Encode returned is on disk.
func (b *Book) Written() { b.changed, b.lapsed = false, false }

// readAt adds the monotonic clock of now to times that were read from disk: so leases last as long as
// they should when the wall clock is set.
func (d bookData) readAt(now time.Time) {
	ago := func(t time.Time) time.Time { return now.Add(min(0, t.Sub(now))) }
	for k, l := range d.Leases {
		l.Expires = now.Add(min(l.Expires.Sub(now), l.Expires.Sub(l.Renewed)))
		l.Opened, l.Renewed = ago(l.Opened), ago(l.Renewed)
		if !l.ResolvedAt.IsZero() {
			l.ResolvedAt = ago(l.ResolvedAt)
		}
		d.Leases[k] = l
	}
	for k, t := range d.Tombstones {
		t.At = ago(t.At)
		d.Tombstones[k] = t
	}
	for k, e := range d.Exempt {
		e.Since = ago(e.Since)
		d.Exempt[k] = e
	}
}

// key names a lease: a fingerprint stands for an alert's labels, and so for its target.
func key(w Wish, fingerprint string) string { return string(w) + "/" + fingerprint }

// Fire opens or renews a lease; Opened is when the firing was received. It reports whether the lease
// is new. stale means that the firing is a late repeat of a resolved alert and changed nothing.
func (b *Book) Fire(l Lease) (opened, stale bool) {
	k := key(l.Wish, l.Fingerprint)
	l.Renewed = l.Opened
	if t, ok := b.d.Tombstones[k]; ok && t.ends(l) {
		return false, true
	}
	old, ok := b.d.Leases[k]
	if ok && old.Resolved && (tombstone{StartsAt: old.StartsAt, At: old.ResolvedAt}).ends(l) {
		return false, true
	}
	if ok {
		l.Opened = old.Opened
		if old.Expires.After(l.Expires) {
			l.Expires = old.Expires // a late repeat does not shorten it
		}
		if old.StartsAt.After(l.StartsAt) {
			l.StartsAt = old.StartsAt
		}
	}
	b.d.Leases[k] = l
	b.changed = true
	return !ok, false
}

// Bounds of the open leases: of one wish for one target, and in all. A few rules may ask for the same
// thing; many more leases mean that a sender is broken.
const (
	maxLeasesEach = 16
	maxLeases     = 1024
)

// Room says why the lease cannot be opened; "" if it can, or is open already.
func (b *Book) Room(l Lease) string {
	if _, open := b.d.Leases[key(l.Wish, l.Fingerprint)]; open {
		return ""
	}
	if len(b.d.Leases) >= maxLeases {
		return fmt.Sprintf("%d leases are open, which is the most", maxLeases)
	}
	same := 0
	for _, other := range b.d.Leases {
		if other.Wish == l.Wish && other.Target == l.Target {
			same++
		}
	}
	if same >= maxLeasesEach {
		return fmt.Sprintf("%d leases ask for the same already, which is the most", maxLeasesEach)
	}
	return ""
}

// Resolve marks a lease as resolved by its sender; at is when the resolve was received. It reports
// whether there was a lease; it remembers the resolve in any case.
func (b *Book) Resolve(w Wish, fingerprint string, startsAt, at time.Time) bool {
	k := key(w, fingerprint)
	l, ok := b.d.Leases[k]
	if ok && l.StartsAt.After(startsAt) {
		return false // resolves an earlier firing
	}
	b.changed = true
	if ok {
		// A firing that started before this end does not open it again.
		l.Resolved, l.ResolvedAt, l.StartsAt = true, at, startsAt
		b.d.Leases[k] = l
		return true
	}
	if t := b.d.Tombstones[k]; !t.StartsAt.After(startsAt) {
		b.bury(k, tombstone{StartsAt: startsAt, At: at})
	}
	return false
}

// Close ends a lease, and remembers it if it was resolved.
func (b *Book) Close(l Lease) {
	k := key(l.Wish, l.Fingerprint)
	delete(b.d.Leases, k)
	if l.Resolved && !b.d.Tombstones[k].StartsAt.After(l.StartsAt) {
		b.bury(k, tombstone{StartsAt: l.StartsAt, At: l.ResolvedAt})
	}
	b.lapsed = true
}

// Get returns the open lease of this wish and fingerprint.
func (b *Book) Get(w Wish, fingerprint string) (Lease, bool) {
	l, ok := b.d.Leases[key(w, fingerprint)]
	return l, ok
}

// PutBack undoes a renewal: l is what Get returned before it.
func (b *Book) PutBack(l Lease) {
	b.d.Leases[key(l.Wish, l.Fingerprint)] = l
	b.changed = true
}

// Shorten lets an open lease expire at this time, if that is earlier.
func (b *Book) Shorten(l Lease, end time.Time) {
	k := key(l.Wish, l.Fingerprint)
	if open, ok := b.d.Leases[k]; ok && end.Before(open.Expires) {
		open.Expires = end
		b.d.Leases[k], b.changed = open, true
	}
}

// Leases returns the open ones, oldest first.
func (b *Book) Leases() []Lease {
	all := make([]Lease, 0, len(b.d.Leases))
	for _, l := range b.d.Leases {
		all = append(all, l)
	}
	slices.SortFunc(all, func(x, y Lease) int {
		if c := x.Opened.Compare(y.Opened); c != 0 {
			return c
		}
		return strings.Compare(key(x.Wish, x.Fingerprint), key(y.Wish, y.Fingerprint))
	})
	return all
}

// Find returns the first lease of this wish whose target matches.
func (b *Book) Find(w Wish, matches func(target string) bool) (Lease, bool) {
	for _, l := range b.Leases() {
		if l.Wish == w && matches(l.Target) {
			return l, true
		}
	}
	return Lease{}, false
}

// Exempt keeps a container from being held again.
func (b *Book) Exempt(e Exemption) {
	b.d.Exempt[e.ContainerID] = e
	b.changed = true
}

// Exemption returns the exemption of a container.
func (b *Book) Exemption(id string) (Exemption, bool) {
	e, ok := b.d.Exempt[id]
	return e, ok
}

// Exemptions returns all, by container id.
func (b *Book) Exemptions() []Exemption {
	all := make([]Exemption, 0, len(b.d.Exempt))
	for _, e := range b.d.Exempt {
		all = append(all, e)
	}
	slices.SortFunc(all, func(x, y Exemption) int { return strings.Compare(x.ContainerID, y.ContainerID) })
	return all
}

// Forgive ends an exemption.
func (b *Book) Forgive(id string) {
	delete(b.d.Exempt, id)
	b.lapsed = true
}

// bury remembers a resolve.
func (b *Book) bury(k string, t tombstone) {
	b.d.Tombstones[k] = t
	if len(b.d.Tombstones) > 2*maxTombstones { // one message may resolve thousands
		b.forgetOldest()
	}
}

// Sweep forgets old tombstones, and the oldest beyond the bound.
func (b *Book) Sweep(now time.Time) {
	for k, t := range b.d.Tombstones {
		if now.Sub(t.At) > repeatsLate {
			delete(b.d.Tombstones, k)
			b.lapsed = true
		}
	}
	b.forgetOldest()
}

// forgetOldest keeps maxTombstones.
func (b *Book) forgetOldest() {
	over := len(b.d.Tombstones) - maxTombstones
	if over <= 0 {
		return
	}
	keys := slices.SortedFunc(maps.Keys(b.d.Tombstones), func(x, y string) int {
		return cmp.Or(b.d.Tombstones[x].At.Compare(b.d.Tombstones[y].At), strings.Compare(x, y))
	})
	for _, k := range keys[:over] {
		delete(b.d.Tombstones, k)
	}
	b.lapsed = true
}
