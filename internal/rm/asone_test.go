package rm_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/laxity/laxity/internal/rm"
	"github.com/laxity/laxity/internal/rm/rmtest"
)

// job is what is switched as one: a process for each GPU, and one that uses both over one file.
func job(fake *rmtest.RM) (groups []rm.Group) {
	for gpu, pid := range []int{10, 11} {
		p := fake.Start(pid)
		groups = append(groups, p.AddChannels(p.Context(p.OpenFile(5), gpu), 100))
	}
	both := fake.Start(12)
	client := both.OpenFile(5)
	return append(groups, both.Context(client, 0), both.Context(client, 1))
}

func expectOff(t *testing.T, fake *rmtest.RM, groups []rm.Group, off bool) {
	t.Helper()
	for _, g := range groups {
		want := []uint32(nil)
		if off {
			want = g.Channels
		}
		if got := fake.Off(g); !slices.Equal(got, want) {
			t.Errorf("of %v on %s %d channels are off, want %d", g, g.GPU, len(got), len(want))
		}
	}
}

// The calls of the GPUs are made side by side: each GPU's first call waits here until the
// other's has come.
func TestGPUsAreSwitchedSideBySide(t *testing.T) {
	fake, m := machine(t)
	groups := job(fake)
	for _, on := range []bool{false, true, false, true} {
		var mu sync.Mutex
		met, seen := make(chan struct{}), map[uint32]bool{}
		fake.Hook(func(c *rmtest.Call) {
			if c.Cmd != rmtest.CmdDisable {
				return
			}
			mu.Lock()
			if !seen[c.Client] && len(seen) == 1 {
				close(met)
			}
			seen[c.Client] = true
			mu.Unlock()
			select {
			case <-met:
			case <-time.After(10 * time.Second):
				t.Error("the other GPU's call does not come")
			}
		})
		skew, err := m.SwitchAsOne(t.Context(), groups[:2], on)
		if err != nil || skew < 0 || skew > 10*time.Second {
			t.Fatalf("on %v: %v, %v", on, skew, err)
		}
		expectOff(t, fake, groups[:2], !on)
	}
	fake.Hook(nil)
	for _, on := range []bool{false, false, true, true} {
		if _, err := m.SwitchAsOne(t.Context(), groups, on); err != nil {
			t.Fatal(err)
		}
		expectOff(t, fake, groups, !on)
	}
	if skew, err := m.SwitchAsOne(t.Context(), nil, false); skew != 0 || err != nil {
		t.Errorf("no group: %v, %v", skew, err)
	}
}

func TestAsOneIsAllOrNone(t *testing.T) {
	fake, m := machine(t)
	groups := job(fake)
	for refused := 1; ; refused++ {
		var mu sync.Mutex
		n := 0
		fake.Hook(func(c *rmtest.Call) {
			mu.Lock()
			defer mu.Unlock()
			if c.Cmd == rmtest.CmdDisable {
				if n++; n == refused {
					c.Status = rmtest.StatusInvalidState
				}
			}
		})
		_, err := m.SwitchAsOne(t.Context(), groups, false)
		if n < refused {
			if refused < 5 || err != nil {
				t.Fatalf("%d calls switch all off, and then %v", refused-1, err)
			}
			expectOff(t, fake, groups, true)
			return
		}
		if err == nil || !strings.Contains(err.Error(), "NV_ERR_INVALID_STATE") {
			t.Fatalf("call %d was refused: %v", refused, err)
		}
		expectOff(t, fake, groups, false)
	}
}

// Nothing is switched where one of them is not what it says.
func TestAsOneChecksAllFirst(t *testing.T) {
	fake, m := machine(t)
	groups := job(fake)
	groups[3].Class = 0xa06d
	fake.Hook(func(c *rmtest.Call) {
		if c.Cmd == rmtest.CmdDisable {
			t.Error("channels were switched")
		}
	})
	if _, err := m.SwitchAsOne(t.Context(), groups, false); !errors.Is(err, rm.ErrChanged) {
		t.Error(err)
	}
	fake.Hook(nil)
	groups[3].Subdevice = 0
	if _, err := m.SwitchAsOne(t.Context(), groups, false); !errors.Is(err, rm.ErrUnsupported) {
		t.Error(err)
	}
	expectOff(t, fake, groups, false)
}

// A rank that ended does not keep the others off.
func TestAsOneOnTriesAll(t *testing.T) {
	fake, m := machine(t)
	a, b := startTenant(fake, 10)
	p := fake.Start(11)
	groups := []rm.Group{b, p.Context(p.OpenFile(5), 1)}
	if _, err := m.SwitchAsOne(t.Context(), groups, false); err != nil {
		t.Fatal(err)
	}
	a.Kill()
	if _, err := m.SwitchAsOne(t.Context(), groups, true); !errors.Is(err, rm.ErrGone) {
		t.Error(err)
	}
	expectOff(t, fake, groups[1:], false)
}

// Who gives up finds all of them on, when the driver answers at last.
func TestAsOneGivenUp(t *testing.T) {
	fake, m := machine(t)
	groups := job(fake)
	hangs, release, once := make(chan struct{}), make(chan struct{}), sync.Once{}
	fake.Hook(func(c *rmtest.Call) {
		if c.Cmd == rmtest.CmdDisable {
			once.Do(func() { close(hangs); <-release })
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-hangs; cancel() }()
	if _, err := m.SwitchAsOne(ctx, groups, false); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	close(release)
	if _, err := m.Slice(t.Context(), groups[3]); err != nil { // its turn comes after
		t.Fatal(err)
	}
	expectOff(t, fake, groups, false)
}
