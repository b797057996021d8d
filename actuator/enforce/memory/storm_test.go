package memory_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/enforce/memory"
	"github.com/laxity/laxity/actuator/enforce/proc"
	"github.com/laxity/laxity/internal/cudaprobe/cudatest"
)

// Programs that load the driver some time before they call cuInit, and that long before
// their context, end: however their guard is taken off and put on meanwhile, and though
// each of their calls is asked about.
func TestNobodyStandsForEver(t *testing.T) {
	rounds := 25
	if testing.Short() {
		rounds = 2
	}
	r := start(t, func(o *memory.Options) { o.Decider = asked{} })
	for round := range rounds {
		var targets []memory.Target
		var programs []*cudatest.Program
		for i := range 6 {
			p := r.built.Start(t)
			id := fmt.Sprintf("container %d of round %d", i, round)
			r.members.Store(p.PID, id)
			programs = append(programs, p)
			targets = append(targets, memory.Target{ID: id, PID: p.PID, GPUs: []string{gpu}, Limit: 1 << 30})
		}
		ended := make(chan int, len(programs))
		var all sync.WaitGroup
		for i, p := range programs {
			all.Go(func() {
				p.Open()
				time.Sleep(time.Duration(20+rand.IntN(150)) * time.Millisecond) // what the program does on the host
				p.Call("cuInit")
				time.Sleep(time.Duration(rand.IntN(120)) * time.Millisecond)
				p.Call("cuDevicePrimaryCtxRetain")
				if a := p.Alloc("cuMemAlloc_v2", mib, 20); a.Count != 20 {
					t.Errorf("%s: %+v", targets[i].ID, a)
				}
				ended <- i
			})
		}
		r.Cover(targets)
		deadline, moment := time.After(patience), time.After(time.Duration(rand.IntN(100))*time.Millisecond)
		for left := len(programs); left > 0; {
			select {
			case <-ended:
				left--
			case <-moment: // somebody changes his mind
				r.Cover(nil)
				for len(r.Report()) > 0 { // the next Cover replaces one that was not taken yet
					select {
					case <-deadline:
						t.Fatal("the guard is not taken off")
					case <-time.After(time.Millisecond):
					}
				}
				r.Cover(targets)
			case <-deadline:
				for _, p := range programs {
					t.Log(p.PID, state(p.PID))
				}
				t.Fatalf("%d programs stand still", left)
			}
		}
		all.Wait()
	}
}

// state is the kernel's letter for a process.
func state(pid int) string {
	s, ok := proc.ReadStat("/proc", pid)
	if !ok {
		return "gone"
	}
	return string(s.State)
}
