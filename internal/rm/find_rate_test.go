package rm_test

import (
	"errors"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/laxity/laxity/internal/rm"
	"github.com/laxity/laxity/internal/rm/rmtest"
)

func TestFiveOldProcessesShareOneRate(t *testing.T) {
	fake := rmtest.New(gpu0)
	var old []*rmtest.Process
	var groups []rm.Group
	for pid := range 5 {
		p, g := startTenant(fake, 10+pid)
		old, groups = append(old, p), append(groups, g)
		fake.SkipClients(0x4000)
	}
	fake.Advance(time.Minute)
	m := manager(fake)
	early, first := startTenant(fake, 20)
	found(t, m, early.ID(), first) // nobody has used anything yet
	left, took, before := len(old), time.Duration(0), fake.Calls("ioctl")
	for done := map[int]bool{}; left > 0; took += 50 * time.Millisecond {
		for i, p := range old {
			got, err := m.Find(t.Context(), p.ID())
			switch {
			case done[i]:
			case err == nil && reflect.DeepEqual(got, groups[i:i+1]):
				done[i] = true
				left--
			case !errors.Is(err, rm.ErrUnfinished):
				t.Fatalf("process %d after %v: %+v, %v", i, took, got, err)
			}
		}
		// Beside the handles there are our own clients and the objects.
		most := int(took.Seconds()*rate) + saved + len(old)*reading + int(took/(50*time.Millisecond)+1)*len(old)*again
		if n := fake.Calls("ioctl") - before; n > most {
			t.Fatalf("%d ioctls in %v, want at most %d", n, took, most)
		}
		// Others that come meanwhile are found at once.
		p, g := startTenant(fake, 100+int(took/time.Millisecond))
		found(t, m, p.ID(), g)
		before += reading + 512
		p.Kill()
		fake.Advance(50 * time.Millisecond)
	}
	if took > 4*time.Second { // 0x4000 × (1 + 2 + 3 + 4 + 5) handles
		t.Errorf("the last was found after %v", took)
	}
}

func TestSearchesAtOnceFindTheirOwn(t *testing.T) {
	fake := rmtest.New(gpu0)
	m := manager(fake)
	var all sync.WaitGroup
	for pid := 10; pid < 18; pid++ {
		p, g := startTenant(fake, pid)
		fake.SkipClients(100)
		all.Go(func() {
			for tries := 0; ; tries++ {
				got, err := m.Find(t.Context(), p.ID())
				if err == nil && reflect.DeepEqual(got, []rm.Group{g}) {
					return
				}
				if err != nil && !errors.Is(err, rm.ErrUnfinished) || tries == 100 {
					t.Errorf("%v: %+v, %v", p.ID(), got, err)
					return
				}
				fake.Advance(time.Millisecond)
			}
		})
	}
	all.Wait()
}
