package memory

import (
	"fmt"
	"math"
	"time"
)

// Request is an allocation that is held at its entry. The call has done nothing yet, and its
// process is stopped until the answer.
type Request struct {
	ContainerID string
	PID, TID    int // in the host's PID namespace
	// GPU is the UUID of the GPU that the memory is wanted on.
	GPU string
	// Bytes are the bytes that it asks for. A context states no size; there it is what contexts have
	// been seen to take.
	Bytes uint64
	// Function of the driver that was called, such as cuMemAlloc_v2.
	Function string
	// Held is what all processes of the container hold on the GPU, bytes: the usage, and grants that
	// the usage does not show yet.
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
	// Wait keeps the call held. The guard asks again after Reconsider and when the usage changes, and
	// denies the call after MaxWait (see Options).
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

// Answer is a verdict with its reason, for people.
type Answer struct {
	Verdict Verdict
	Reason  string
}

// Sight is what is held at one moment: the usage and the calls under way.
type Sight struct {
	// At is when the reading began: everything that passed before is in it.
	At time.Time
	// Used is what is not available on each GPU, bytes, by UUID: memory in use by anybody, memory that
	// was given up and is not free yet, and memory that calls under way ask for. A GPU that cannot be
	// read is absent.
	Used map[string]uint64
	// Held is what each covered container holds on each of its GPUs, bytes, by id and UUID, calls
	// under way included. On a GPU that cannot be read that is what was seen there last. The guard
	// decides itself about calls there.
	Held map[string]map[string]uint64
}

// Decider decides requests. The guard calls its methods one after another. They MUST NOT block,
// because processes are stopped meanwhile, and MUST NOT call the Guard.
type Decider interface {
	// Observe receives what was seen, each time before requests are decided. A container whose
	// Ceiling was 0 before At has got nothing since without a grant.
	Observe(Sight)
	// Decide answers a request. A granted request counts as held from then on.
	Decide(Request) Answer
	// Ceiling is how many bytes a container may hold on a GPU before the kernel asks: up to there the
	// kernel passes calls itself, in some 2 µs. More than the limit counts as the limit; 0 asks
	// about every call.
	Ceiling(containerID, gpu string, limit uint64) uint64
}

// Limit is the Decider that knows limits alone: it denies what would exceed the container's limit.
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
