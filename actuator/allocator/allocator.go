// Package allocator decides who gets GPU memory now, who waits, and who is told
// that there is none. Pure: it imports the standard library only, has no clock
// and keeps nothing; everything that it depends on is in a State.
//
// # No deadlock
//
// The most that a container may hold is known (laxity.gpu-memory): its claim.
// A request is granted only if an order stays in which every container can get
// its whole claim and end, each with what is free and what those before it give
// back: the banker's algorithm (Dijkstra 1965), over all GPUs at once. So among
// containers with claims somebody can always go on.
//
// A container without a limit is not asked, unless cards are divided: it takes what
// is free. Nobody counts on its end: those with a claim can all end beside what it
// holds. Whoever comes to wait in a circle all the same is seen at once (Coffman
// 1971) and one is swapped out, or the last in order is told that there is no memory.
//
// # No starvation
//
// Requests are answered in the order of the policy. One that waits may be passed
// by others for as long as Patience; then nobody who holds nothing yet goes first.
// A wait is never longer than MaxWait: who may not begin until then begins if there
// is room, everybody else is refused.
package allocator

import "time"

// Share says how a card is divided between the containers that are active on it.
type Share string

// The ways to share. A limit of its own holds for a container in any case.
const (
	// ByLimit: nothing but its own limit bounds a container.
	ByLimit Share = "limit"
	// Fair: the card divided by its active containers, equally.
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
	// Gone is held by what nobody decides about: unmanaged containers, processes of
	// the host, the driver itself.
	Gone uint64
	// Reserve is kept free.
	Reserve uint64
}

// Container is one container that is decided about.
type Container struct {
	ID, Name string
	// Limit is the most that it may hold on each GPU that it can see, by UUID,
	// bytes. Without any it may hold the whole card.
	Limit map[string]uint64
	// Held is what it holds on each GPU, by UUID, bytes, contexts included. What was
	// granted and is not in the ledger yet belongs to it.
	Held map[string]uint64
	// Never: it is never refused. Peak is the most that it is known to use, by UUID:
	// what it counts for, if it has no limit.
	Never bool
	Peak  map[string]uint64
	// Stays: nobody can count on its end (a person paused it).
	Stays bool
	// Barred says why it may not begin to hold memory now (it is not expected to fit
	// beside those that come first); empty: it may. It counts for MaxWait.
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
	// MaxWait is the longest that a request waits; Patience for how long others may
	// pass it that hold nothing yet.
	MaxWait, Patience time.Duration
}

// Verdict is what becomes of a request.
type Verdict string

// The verdicts.
const (
	Grant Verdict = "grant"
	Wait  Verdict = "wait" // asked again when something changed
	Deny  Verdict = "deny" // CUDA's own out of memory
)

// Why is the kind of reason, for metrics.
type Why string

// The reasons.
const (
	Free     Why = "free"     // there is room, and an order in which all end
	Never    Why = "never"    // laxity.pause=never
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
	// Victims are containers (ids) that should be swapped out so that it need not
	// wait; only with Wait.
	Victims []string
}
