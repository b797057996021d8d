package memory

import (
	"fmt"
	"math"
	"time"
)

// Request is an allocation that is held at its entry: nothing of it has happened
// yet, and its process stands still until it is answered.
type Request struct {
	ContainerID string
	PID, TID    int // in the host's PID namespace
	// GPU is the UUID of the GPU that the memory is wanted on.
	GPU string
	// Bytes that are wanted. Of a context, which says no size, what contexts have
	// been seen to take.
	Bytes uint64
	// Function of the driver that was called, such as cuMemAlloc_v2.
	Function string
	// Held is what the container holds on the GPU, by the ledger and by the grants
	// that the ledger does not show yet, over all of its processes.
	Held uint64
	// Limit is the container's limit on the GPU, as it was given to Cover; 0: none.
	Limit uint64
	// Since is when the call was made.
	Since time.Time
}

// Verdict says what becomes of a request.
type Verdict int

// The verdicts.
const (
	// Grant lets the call run.
	Grant Verdict = iota
	// Deny lets the call return CUDA_ERROR_OUT_OF_MEMORY without having run.
	Deny
	// Wait keeps the call held. It is asked about again after Reconsider, and when
	// the ledger changes; after Options.MaxWait it is denied.
	Wait
)

func (v Verdict) String() string {
	switch v {
	case Grant:
		return "grant"
	case Deny:
		return "deny"
	case Wait:
		return "wait"
	}
	return fmt.Sprintf("verdict %d", int(v))
}

// Answer is a verdict, and why, in words for people.
type Answer struct {
	Verdict Verdict
	Reason  string
}

// Sight is what is held at one moment, as the devices and the calls under way say.
type Sight struct {
	// At is when it was begun to look: what was let through before is in it.
	At time.Time
	// Used is what cannot be had of each GPU, bytes, by UUID: it is in use by whomever,
	// or was given up and is not free yet, or calls under way ask for it.
	Used map[string]uint64
	// Held is what each covered container holds on each of its GPUs, bytes, by id and
	// UUID. Calls under way are in it.
	Held map[string]map[string]uint64
}

// Decider decides about requests. Its methods are called one after the other, MUST
// NOT block (processes stand still meanwhile), and MUST NOT call the Guard.
type Decider interface {
	// Observe is told what was seen, each time before requests are decided about. A
	// container whose Ceiling was 0 before At has got nothing since without a grant.
	Observe(Sight)
	// Decide answers a request. A granted request counts as held from then on.
	Decide(Request) Answer
	// Ceiling is up to how many bytes a container may hold on a GPU without
	// anybody being asked: the kernel passes such calls by itself, in some 2 µs.
	// More than the limit counts as the limit; 0 asks about every call.
	Ceiling(containerID, gpu string, limit uint64) uint64
}

// Limit is the Decider that knows limits and nothing else: it denies what would
// exceed the container's.
type Limit struct{}

// Decide implements Decider.
func (Limit) Decide(r Request) Answer {
	if r.Limit == 0 {
		return Answer{Grant, "it has no limit"}
	}
	if r.Held <= r.Limit && r.Bytes <= r.Limit-r.Held {
		return Answer{Grant, "within its limit"}
	}
	return Answer{Deny, fmt.Sprintf("holds %d of %d bytes, and wants %d more", r.Held, r.Limit, r.Bytes)}
}

// Observe implements Decider.
func (Limit) Observe(Sight) {}

// Ceiling implements Decider.
func (Limit) Ceiling(_, _ string, limit uint64) uint64 {
	if limit == 0 {
		return math.MaxUint64
	}
	return limit
}
