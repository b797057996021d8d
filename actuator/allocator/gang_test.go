package allocator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/allocator"
)

// Two jobs of two ranks on two GPUs: rank g of each job uses GPU g, and no rank goes on while the other
// one of its job waits. Small enough to look at every state that they can come into.
const ranks = 2

type ranksWorld struct {
	held    [2][ranks]uint8 // by job and GPU
	pending [2][ranks]bool  // asks for a unit
	ended   [2]bool
}

type ranksClaims [2][ranks]uint8

// state is the world as Decide sees it; units is the memory of each GPU. Without known, the ranks
// have no limits.
func (w ranksWorld) state(c ranksClaims, units uint64, known bool) allocator.State {
	s := allocator.State{Now: epoch, Share: allocator.ByLimit, MaxWait: time.Hour}
	for g := range ranks {
		s.GPUs = append(s.GPUs, allocator.GPU{UUID: gpuName(g), Total: units})
	}
	for j := range w.ended {
		for g := range ranks {
			if w.ended[j] {
				continue
			}
			id := fmt.Sprintf("job%d-%d", j, g)
			k := allocator.Container{ID: id, Name: id, Gang: fmt.Sprint("job", j), Rank: j, Held: map[string]uint64{gpuName(g): uint64(w.held[j][g])}}
			if known {
				k.Limit = map[string]uint64{gpuName(g): uint64(c[j][g])}
			}
			s.Containers = append(s.Containers, k)
			if w.pending[j][g] {
				s.Requests = append(s.Requests, allocator.Request{ID: uint64(ranks*j + g), Container: id, GPU: gpuName(g), Bytes: 1, Since: epoch})
			}
		}
	}
	return s
}

// settle answers what is asked, as often as that changes anything.
func (w ranksWorld) settle(t *testing.T, c ranksClaims, units uint64) ranksWorld {
	t.Helper()
	for again := true; again; {
		again = false
		for _, a := range allocator.Decide(w.state(c, units, true)) {
			j, g := a.Request.ID/ranks, a.Request.ID%ranks
			switch a.Verdict {
			case allocator.Grant:
				w.held[j][g]++
				w.pending[j][g], again = false, true
			case allocator.Deny:
				t.Fatalf("claims %v, %+v: %s is denied within its limit: %s", c, w, a.Request.Container, a.Reason)
			}
		}
	}
	return w
}

// next lists every world that one step of one job leads to.
func (w ranksWorld) next(c ranksClaims) []ranksWorld {
	var all []ranksWorld
	for j := range w.ended {
		if w.ended[j] || w.pending[j] != [ranks]bool{} {
			continue // a rank waits for memory, so the others wait for it
		}
		end := w
		end.ended[j], end.held[j] = true, [ranks]uint8{}
		all = append(all, end)
		for asks := 1; asks < 1<<ranks; asks++ { // ranks ask one by one, or at once
			ask := w
			for g := range ranks {
				if asks>>g&1 == 1 {
					ask.pending[j][g] = w.held[j][g] < c[j][g]
				}
			}
			if ask != w {
				all = append(all, ask)
			}
		}
	}
	return all
}

// Whatever two jobs claim and in which order they ask, one of them can always go on.
func TestGangsNeverWaitForEachOther(t *testing.T) {
	const units = 3
	seen := 0
	for n := range 1 << (4 * ranks) { // claims of 0 to 3 on each GPU
		if testing.Short() && n%7 > 0 {
			continue
		}
		c := ranksClaims{{uint8(n & 3), uint8(n >> 2 & 3)}, {uint8(n >> 4 & 3), uint8(n >> 6 & 3)}}
		visited := map[ranksWorld]bool{}
		todo := []ranksWorld{{}}
		for len(todo) > 0 {
			w := todo[len(todo)-1].settle(t, c, units)
			todo = todo[:len(todo)-1]
			if visited[w] {
				continue
			}
			visited[w] = true
			next := w.next(c)
			if len(next) == 0 && w.ended != [2]bool{true, true} {
				t.Fatalf("claims %v: nobody can go on: %+v", c, w)
			}
			todo = append(todo, next...)
		}
		seen += len(visited)
	}
	t.Log(seen, "states")
	if seen < 1000 {
		t.Errorf("%d states were looked at, too few to show anything", seen)
	}
}

// Two gangs without limits take what is free, and come to wait for each other across two GPUs: that is
// seen at once, though each has a rank that does not wait.
func TestCircleOfGangs(t *testing.T) {
	w := ranksWorld{held: [2][ranks]uint8{{60, 0}, {0, 60}}}
	w.pending[0][1] = true
	s := w.state(ranksClaims{}, 60, false)
	if a := allocator.Decide(s)[0]; a.Verdict != allocator.Wait {
		t.Fatalf("job1 still runs: %+v", a)
	}
	w.pending[1][0] = true
	s = w.state(ranksClaims{}, 60, false)
	answers := allocator.Decide(s)
	if first, last := answers[0], answers[1]; first.Verdict != allocator.Wait || last.Verdict != allocator.Deny || last.Why != allocator.Deadlock {
		t.Errorf("%+v\n%+v\nwant the first to wait, and the last to be denied", first, last)
	}
	// The same ranks as containers of their own: those that do not wait end, and give theirs back.
	for i := range s.Containers {
		s.Containers[i].Gang = ""
	}
	for _, a := range allocator.Decide(s) {
		if a.Verdict != allocator.Wait {
			t.Errorf("%+v, want it to wait for the other one's end", a)
		}
	}
	// One that can be swapped out makes room.
	s = w.state(ranksClaims{}, 60, false)
	s.Containers[3].Swappable = true // job1-1 holds what job0-1 waits for
	if a := allocator.Decide(s)[0]; len(a.Victims) != 1 || a.Victims[0] != "job1-1" {
		t.Errorf("%+v, want job1-1 to be swapped out", a)
	}
}
