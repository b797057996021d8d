package allocator_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/allocator"
)

// host plays containers that ask, give back and end at random.
type host struct {
	r       *rand.Rand
	s       allocator.State
	serial  uint64
	limited bool // all have limits
	sure    []string
}

const maxWait = time.Minute

func newHost(seed uint64, share allocator.Share, limited bool) *host {
	h := &host{r: rand.New(rand.NewPCG(seed, 7)), limited: limited}
	h.s = allocator.State{Now: epoch, Share: share, MaxWait: maxWait, Patience: 5 * time.Second}
	for g := range 1 + h.r.IntN(3) {
		h.s.GPUs = append(h.s.GPUs, allocator.GPU{UUID: gpuName(g), Total: 100, Gone: uint64(h.r.IntN(20)), Reserve: 2})
	}
	for i := range 2 + h.r.IntN(5) {
		h.s.Containers = append(h.s.Containers, h.container(i))
	}
	return h
}

func (h *host) container(i int) allocator.Container {
	c := allocator.Container{ID: boxName(i), Name: boxName(i), Rank: h.r.IntN(4), Held: map[string]uint64{}}
	if h.limited || h.r.IntN(2) == 0 {
		c.Limit = map[string]uint64{}
		for _, g := range h.s.GPUs {
			c.Limit[g.UUID] = uint64(10 + h.r.IntN(90))
		}
	}
	return c
}

func (h *host) find(id string) *allocator.Container {
	i := slices.IndexFunc(h.s.Containers, func(c allocator.Container) bool { return c.ID == id })
	return &h.s.Containers[i]
}

func (h *host) waits(id string) bool {
	return slices.ContainsFunc(h.s.Requests, func(r allocator.Request) bool { return r.Container == id })
}

// move lets a container that does not wait do something. It reports false when
// all wait.
func (h *host) move() bool {
	var free []string
	for _, c := range h.s.Containers {
		if !h.waits(c.ID) {
			free = append(free, c.ID)
		}
	}
	if len(free) == 0 {
		return false
	}
	c := h.find(free[h.r.IntN(len(free))])
	g := h.s.GPUs[h.r.IntN(len(h.s.GPUs))].UUID
	switch h.r.IntN(10) {
	case 0: // it ends, and another one comes
		c.Held = map[string]uint64{}
	case 1:
		c.Held[g] -= min(c.Held[g], uint64(h.r.IntN(30)))
	default:
		h.serial++
		h.s.Requests = append(h.s.Requests, allocator.Request{ID: h.serial, Container: c.ID, GPU: g, Bytes: uint64(1 + h.r.IntN(30)), Since: h.s.Now})
	}
	return true
}

// answer carries the verdicts out and returns them.
func (h *host) answer() []allocator.Answer {
	answers := allocator.Decide(h.s)
	for _, a := range answers {
		if a.Verdict == allocator.Grant {
			h.find(a.Request.Container).Held[a.Request.GPU] += a.Request.Bytes
		}
		if a.Verdict != allocator.Wait {
			h.s.Requests = slices.DeleteFunc(h.s.Requests, func(r allocator.Request) bool { return r.ID == a.Request.ID })
		}
		for _, v := range a.Victims {
			h.find(v).Held = map[string]uint64{}
			h.s.Requests = slices.DeleteFunc(h.s.Requests, func(r allocator.Request) bool { return r.Container == v })
		}
	}
	return answers
}

// ends lists those that hold memory, have limits and can all end, by the
// definition, beside what the others hold; ok is false where a card is overdrawn.
func (h *host) ends() (can []string, ok bool) {
	free := map[string]uint64{}
	for _, g := range h.s.GPUs {
		free[g.UUID] = g.Total - g.Gone - g.Reserve
		for _, c := range h.s.Containers {
			if c.Held[g.UUID] > free[g.UUID] {
				return nil, false
			}
			free[g.UUID] -= c.Held[g.UUID]
		}
	}
	left := slices.DeleteFunc(slices.Clone(h.s.Containers), func(c allocator.Container) bool { return c.Limit == nil || !holds(c) })
	for {
		i := slices.IndexFunc(left, func(c allocator.Container) bool {
			for _, g := range h.s.GPUs {
				most := min(c.Limit[g.UUID], g.Total-g.Gone-g.Reserve)
				if most > c.Held[g.UUID] && most-c.Held[g.UUID] > free[g.UUID] {
					return false
				}
			}
			return true
		})
		if i < 0 {
			return can, true
		}
		for g, n := range left[i].Held {
			free[g] += n
		}
		can = append(can, left[i].ID)
		left = slices.Delete(left, i, i+1)
	}
}

func holds(c allocator.Container) bool {
	for _, n := range c.Held {
		if n > 0 {
			return true
		}
	}
	return false
}

func (h *host) check(t *testing.T, before allocator.State, answers []allocator.Answer) {
	t.Helper()
	for _, c := range h.s.Containers {
		for g, n := range c.Held {
			if limit, ok := c.Limit[g]; ok && n > limit {
				t.Fatalf("%s holds %d of %s, its limit is %d", c.ID, n, g, limit)
			}
		}
	}
	can, ok := h.ends()
	if !ok {
		t.Fatalf("more is granted than there is: %+v\nafter %+v", h.s.Containers, answers)
	}
	if h.s.Share == allocator.ByLimit {
		for _, c := range h.s.Containers {
			if (h.limited || slices.Contains(h.sure, c.ID)) && holds(c) && !slices.Contains(can, c.ID) {
				t.Fatalf("%s cannot end any more: %+v\nafter %+v\nof %+v", c.ID, h.s.Containers, answers, before)
			}
		}
	}
	h.sure = can
	for _, a := range answers {
		if a.Reason == "" || (len(a.Victims) > 0 && a.Verdict != allocator.Wait) {
			t.Fatalf("answer %+v", a)
		}
		if waited := h.s.Now.Sub(a.Request.Since); a.Verdict == allocator.Wait && waited >= maxWait {
			t.Fatalf("waits for %v: %+v", waited, a)
		}
		if a.Verdict == allocator.Deny && h.limited && h.s.Share == allocator.ByLimit &&
			!slices.Contains([]allocator.Why{allocator.Limit, allocator.TooLarge, allocator.TooLong}, a.Why) {
			t.Fatalf("denied though all have limits: %+v", a)
		}
	}
}

// draws is how many of all worlds a test draws: a tenth with -short.
func draws(all uint64) uint64 {
	if testing.Short() {
		return max(1, all/10)
	}
	return all
}

func TestProperties(t *testing.T) {
	for _, share := range []allocator.Share{allocator.ByLimit, allocator.Fair, allocator.Adaptive} {
		for _, limited := range []bool{true, false} {
			for _, swap := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s limited=%v swap=%v", share, limited, swap), func(t *testing.T) {
					for seed := range draws(25) {
						h := newHost(seed, share, limited)
						for i := range h.s.Containers {
							h.s.Containers[i].Swappable = swap && h.r.IntN(2) == 0
						}
						for range 100 {
							h.s.Now = h.s.Now.Add(time.Duration(h.r.IntN(2000)) * time.Millisecond)
							if !h.move() {
								t.Fatalf("seed %d: all wait: %+v", seed, h.s)
							}
							before := h.s
							h.check(t, before, h.answer())
						}
					}
				})
			}
		}
	}
}

// The answers do not depend on the order of what goes in, and what goes in is not
// changed.
func TestDeterministic(t *testing.T) {
	for seed := range draws(60) {
		h := newHost(seed, allocator.Share(allocator.Shares[seed%3]), seed%2 == 0)
		for range 40 {
			if !h.move() {
				break
			}
			a := allocator.Decide(h.s)
			s := h.s
			s.Containers, s.Requests, s.GPUs = slices.Clone(s.Containers), slices.Clone(s.Requests), slices.Clone(s.GPUs)
			h.r.Shuffle(len(s.Containers), func(i, j int) { s.Containers[i], s.Containers[j] = s.Containers[j], s.Containers[i] })
			h.r.Shuffle(len(s.Requests), func(i, j int) { s.Requests[i], s.Requests[j] = s.Requests[j], s.Requests[i] })
			slices.Reverse(s.GPUs)
			if b := allocator.Decide(s); !reflect.DeepEqual(a, b) {
				t.Fatalf("seed %d:\n%+v\n%+v", seed, a, b)
			}
			h.answer()
		}
	}
}

// In every state that containers come to, an adaptive share is no less than a fair one,
// and what a fair share is granted an adaptive one is granted too, unless somebody could
// not get its own share any more, which may be larger than a fair one.
func TestAdaptiveIsNeverLessThanFair(t *testing.T) {
	for _, share := range []allocator.Share{allocator.Fair, allocator.Adaptive} {
		for _, limited := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s limited=%v", share, limited), func(t *testing.T) {
				for seed := range draws(10) {
					h := newHost(seed, share, limited)
					for range 100 {
						h.s.Now = h.s.Now.Add(time.Duration(h.r.IntN(2000)) * time.Millisecond)
						h.move()
						compareShares(t, h.s)
						h.answer()
					}
				}
			})
		}
	}
}

func compareShares(t *testing.T, s allocator.State) {
	t.Helper()
	fair, adaptive := s, s
	fair.Share, adaptive.Share = allocator.Fair, allocator.Adaptive
	more := allocator.Parts(adaptive)
	for i, p := range allocator.Parts(fair) {
		if more[i].Share < p.Share {
			t.Fatalf("%+v, by a fair share %+v", more[i], p)
		}
	}
	for _, r := range s.Requests {
		fair.Requests, adaptive.Requests = []allocator.Request{r}, []allocator.Request{r}
		f, a := allocator.Decide(fair)[0], allocator.Decide(adaptive)[0]
		if f.Verdict == allocator.Grant && a.Verdict != allocator.Grant && a.Why != allocator.Unsafe {
			t.Fatalf("%+v, by a fair share %+v\nin %+v", a, f, s)
		}
	}
}
