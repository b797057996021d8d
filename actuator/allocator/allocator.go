// Package allocator decides which request gets GPU memory now, which waits, and which is denied. Pure:
// it imports the standard library only, has no clock and keeps nothing; everything that it depends
// on is in a State.
//
// # No deadlock
//
// The most that a container may hold is known (laxity.gpu-memory): its claim.
// A request is granted only if an order stays in which every container can get
// its whole claim and end, each with what is free and what those before it give
// back: the banker's algorithm (Dijkstra 1965), over all GPUs at once. So among
// containers with claims somebody can always go on.
//
// A container without a limit takes what is free without asking, unless cards are divided. The
// allocator does not count on its end: all containers with a claim can end beside what it
// holds. Containers of one gang end together: none of them can end before all have their claims. If
// requests wait in a circle all the same, the allocator finds the circle at once
// (Coffman 1971). Then one container is swapped out, or the last request in order is denied.
//
// # No starvation
//
// Requests are answered in the order of the policy. Others may pass a waiting request for as long as
// Patience. After that, no container that holds nothing yet goes first. No wait is longer than
// MaxWait: then a container that may not begin yet begins if there is room, and every other request is
// denied. Where cards are divided it may begin after half of that if somebody can be swapped out, who then gives back
// what is its share.
package allocator

import "time"

// Share says how a card is divided between the containers that are active on it.
type Share string

// The ways to share. A container's own limit holds in any case.
const (
	// ByLimit: only its own limit bounds a container.
	ByLimit Share = "limit"
	// Fair: the active containers of a card get equal shares.
	Fair Share = "fair"
	// Adaptive: as Fair, but what a container cannot use by its limit goes to the
	// others, and what it does not use now is lent and called back.
	Adaptive Share = "adaptive"
)

// Divides reports whether each active container has a share of the card.
func (s Share) Divides() bool { return s == Fair || s == Adaptive }

// Shares lists the values of Share.
var Shares = []string{string(ByLimit), string(Fair), string(Adaptive)}

// GPU is one card or MIG instance, in bytes.
type GPU struct {
	UUID  string
	Total uint64
	// Gone is memory that the allocator cannot decide about: unmanaged containers, processes of the
	// host, the driver itself.
	Gone uint64
	// Reserve is kept free.
	Reserve uint64
}

// Usable is what containers can have of the card.
func (g GPU) Usable() uint64 { return sub(sub(g.Total, g.Gone), g.Reserve) }

// Container is a container whose memory the allocator decides.
type Container struct {
	ID, Name string
	// Gang is the job of which it is one part; empty: it is a job of its own. The parts of a job
	// wait for each other, and end together.
	Gang string
	// Limit is the most that it may hold on each GPU that it can see, by UUID, bytes. A container
	// without a limit may hold the whole card.
	Limit map[string]uint64
	// Held is what it holds on each GPU, by UUID, bytes: contexts included, and grants that the usage
	// does not show yet.
	Held map[string]uint64
	// Never: its requests never wait. They are denied for its own limit alone, and only if Bounded.
	// Because says why, for people. Peak is the most that it is known to use, by UUID, bytes; without
	// a limit it counts for that.
	Never, Bounded bool
	Because        string
	Peak           map[string]uint64
	// Stays: its end is uncertain (a person paused it).
	Stays bool
	// Barred says why it may not begin to hold memory now, for MaxWait at most, half of it where cards are
	// divided and somebody can be swapped out: it is not expected to fit beside those that come first. Empty: it may.
	Barred string
	// Rank is its place in the order of the policy: the smaller, the earlier.
	Rank int
	// Swappable: it can be swapped out, which frees all that it holds.
	Swappable bool
	// Swapped: it is swapped out; Held is then empty and it asks for nothing.
	Swapped bool
}

// Request is an allocation that is held at its entry.
type Request struct {
	ID        uint64 // tells requests apart
	Container string // id
	GPU       string // UUID
	Bytes     uint64
	Since     time.Time // when it was held
}

// State is everything that a decision depends on. A container that a request
// names and a GPU that it names must be in it.
type State struct {
	Now        time.Time
	GPUs       []GPU
	Containers []Container
	Requests   []Request
	Share      Share
	// MaxWait is the longest that a request waits. Patience is how long containers that hold nothing
	// yet may pass it.
	MaxWait, Patience time.Duration
}

// Verdict is what becomes of a request.
type Verdict string

// The verdicts.
const (
	Grant Verdict = "grant"
	Wait  Verdict = "wait" // decided again when something changed
	Deny  Verdict = "deny" // CUDA's own out of memory
)

// Why is the kind of reason, for metrics.
type Why string

// The reasons.
const (
	Free     Why = "free"     // there is room, and an order in which all end
	Never    Why = "never"    // it never waits: laxity.pause=never, or it must not be held now
	Limit    Why = "limit"    // over its own limit
	Shared   Why = "share"    // over its share of the card
	Room     Why = "room"     // the card is full
	Unsafe   Why = "unsafe"   // granting it could block others for ever
	Behind   Why = "behind"   // others have waited for longer
	Barred   Why = "barred"   // it may not begin yet
	TooLong  Why = "too long" // it has waited for as long as is allowed
	TooLarge Why = "too large"
	Deadlock Why = "deadlock" // all wait for each other, and it is the last in order
	Unknown  Why = "unknown"  // nothing is known of its container or GPU
)

// Answer is the verdict about one request.
type Answer struct {
	Request Request
	Verdict Verdict
	Why     Why
	Reason  string // for people
	// Victims are the containers (ids) to swap out so that it can stop waiting; only with Wait.
	Victims []string
}
