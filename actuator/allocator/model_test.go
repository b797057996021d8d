package allocator_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/allocator"
)

// A world small enough to look at every state that it can come into: three
// containers, two GPUs of four units each, everybody asks for a unit at a time,
// gives one back, or ends, in whatever order.

const (
	worldContainers = 3
	worldGPUs       = 2
	worldUnits      = 4
)

type world struct {
	held    [worldContainers][worldGPUs]uint8
	pending [worldContainers]uint8 // 1 + the GPU; 0: none
	ended   [worldContainers]bool
}

type claims [worldContainers][worldGPUs]uint8

var epoch = time.Unix(1000, 0)

func gpuName(g int) string  { return fmt.Sprintf("GPU-%d", g) }
func boxName(i int) string  { return fmt.Sprintf("c%d", i) }
func boxIndex(s string) int { return int(s[1] - '0') }

// state is the world as Decide sees it.
func (w world) state(c claims, patience time.Duration) allocator.State {
	s := allocator.State{Now: epoch.Add(time.Hour), Share: allocator.ByLimit, Patience: patience}
	for g := range worldGPUs {
		s.GPUs = append(s.GPUs, allocator.GPU{UUID: gpuName(g), Total: worldUnits})
	}
	for i := range worldContainers {
		if w.ended[i] {
			continue
		}
		b := allocator.Container{ID: boxName(i), Name: boxName(i), Rank: i, Limit: map[string]uint64{}, Held: map[string]uint64{}}
		for g := range worldGPUs {
			b.Limit[gpuName(g)], b.Held[gpuName(g)] = uint64(c[i][g]), uint64(w.held[i][g])
		}
		s.Containers = append(s.Containers, b)
		if p := w.pending[i]; p > 0 {
			s.Requests = append(s.Requests, allocator.Request{ID: uint64(i), Container: boxName(i), GPU: gpuName(int(p - 1)), Bytes: 1, Since: epoch})
		}
	}
	return s
}

// settle answers what is asked, as often as that changes anything.
func (w world) settle(t *testing.T, c claims, patience time.Duration) world {
	for again := true; again; {
		again = false
		for _, a := range allocator.Decide(w.state(c, patience)) {
			switch i := boxIndex(a.Request.Container); a.Verdict {
			case allocator.Grant:
				w.held[i][w.pending[i]-1]++
				w.pending[i] = 0
				again = true
			case allocator.Deny:
				t.Fatalf("claims %v, %+v: %s is denied within its limit: %s", c, w, boxName(i), a.Reason)
			}
		}
	}
	return w
}

// safe is the definition, by trying every order.
func (w world) safe(c claims) bool {
	var free [worldGPUs]int
	for g := range worldGPUs {
		free[g] = worldUnits
		for i := range worldContainers {
			free[g] -= int(w.held[i][g])
		}
		if free[g] < 0 {
			return false
		}
	}
	var try func(done [worldContainers]bool, free [worldGPUs]int) bool
	try = func(done [worldContainers]bool, free [worldGPUs]int) bool {
		left := false
		for i := range worldContainers {
			if done[i] {
				continue
			}
			left = true
			ok, after := true, free
			for g := range worldGPUs {
				ok = ok && int(min(c[i][g], worldUnits))-int(w.held[i][g]) <= free[g]
				after[g] += int(w.held[i][g])
			}
			next := done
			next[i] = true
			if ok && try(next, after) {
				return true
			}
		}
		return !left
	}
	return try(w.ended, free)
}

// next lists every world that one step of one container leads to.
func (w world) next(c claims) []world {
	var all []world
	for i := range worldContainers {
		if w.ended[i] || w.pending[i] > 0 {
			continue
		}
		end := w
		end.ended[i], end.held[i] = true, [worldGPUs]uint8{}
		all = append(all, end)
		for g := range worldGPUs {
			if w.held[i][g] < c[i][g] {
				ask := w
				ask.pending[i] = uint8(g + 1)
				all = append(all, ask)
			}
			if w.held[i][g] > 0 {
				free := w
				free.held[i][g]--
				all = append(all, free)
			}
		}
	}
	return all
}

// explore looks at everything that can happen with these claims and returns how
// many states there are.
func explore(t *testing.T, c claims, patience time.Duration) int {
	seen := map[world]bool{{}: true}
	for todo := []world{{}}; len(todo) > 0; {
		w := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		waiting, running := 0, 0
		for i := range worldContainers {
			switch {
			case w.ended[i]:
			case w.pending[i] > 0:
				waiting++
			default:
				running++
			}
		}
		if waiting > 0 && running == 0 {
			t.Fatalf("claims %v: deadlock in %+v", c, w)
		}
		if !w.safe(c) {
			t.Fatalf("claims %v: unsafe state %+v", c, w)
		}
		for _, n := range w.next(c) {
			if n = n.settle(t, c, patience); !seen[n] {
				seen[n] = true
				todo = append(todo, n)
			}
		}
	}
	return len(seen)
}

// Every interleaving of three containers on two GPUs: no state is unsafe, nobody
// is denied what its limit allows, and never do all wait.
func TestModel(t *testing.T) {
	options := [][worldGPUs]uint8{{4, 4}, {3, 2}}
	if os.Getenv("LAXITY_MODEL") == "full" { // some minutes
		options = nil
		for x := range uint8(worldUnits + 1) {
			for y := range uint8(worldUnits + 1) {
				options = append(options, [worldGPUs]uint8{x, y})
			}
		}
	}
	if testing.Short() {
		options = options[:1]
	}
	states, worlds := 0, 0
	for _, x := range options {
		for _, y := range options {
			for _, z := range options {
				patience := time.Duration(worlds%2) * 24 * time.Hour // nobody may pass, or everybody
				states += explore(t, claims{x, y, z}, patience)
				worlds++
			}
		}
	}
	t.Logf("%d states of %d worlds", states, worlds)
}

// The same without limits: there is no safe order, but whenever all wait,
// somebody is denied or swapped out, and it is the last in order.
func TestModelWithoutLimits(t *testing.T) {
	seen := map[world]bool{{}: true}
	circles := 0
	for todo := []world{{}}; len(todo) > 0; {
		w := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, n := range w.next(claims{{4, 4}, {4, 4}, {4, 4}}) {
			for again := true; again; {
				again = false
				s := n.state(claims{}, 0)
				for i := range s.Containers {
					s.Containers[i].Limit = nil
				}
				for _, a := range allocator.Decide(s) {
					i := boxIndex(a.Request.Container)
					if a.Verdict == allocator.Wait {
						continue
					}
					again = again || a.Verdict == allocator.Grant
					if a.Verdict == allocator.Grant {
						n.held[i][n.pending[i]-1]++
					} else {
						circles++
					}
					n.pending[i] = 0
				}
			}
			waiting, running := 0, 0
			for i := range worldContainers {
				if n.pending[i] > 0 {
					waiting++
				} else if !n.ended[i] {
					running++
				}
			}
			if waiting > 0 && running == 0 {
				t.Fatalf("deadlock in %+v", n)
			}
			if !seen[n] {
				seen[n] = true
				todo = append(todo, n)
			}
		}
	}
	if circles == 0 {
		t.Error("no circle ever came up")
	}
	t.Logf("%d states, %d times a circle was broken", len(seen), circles)
}
