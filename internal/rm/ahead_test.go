package rm_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laxity/laxity/internal/rm"
	"github.com/laxity/laxity/internal/rm/rmtest"
)

const wait = 10 * time.Millisecond // for the driver's lock

// starts makes each question wait, as programs that start do, but for the first quick ones.
// asked counts the questions, most is how many waited at once.
func starts(fake *rmtest.RM, quick int64) (asked, most *atomic.Int64) {
	var waiting atomic.Int64
	asked, most = &atomic.Int64{}, &atomic.Int64{}
	fake.Hook(func(c *rmtest.Call) {
		if c.Cmd != rmtest.CmdHandleInfo || asked.Add(1) <= quick {
			return
		}
		now := waiting.Add(1)
		for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
		}
		time.Sleep(wait)
		waiting.Add(-1)
	})
	return asked, most
}

// Beside programs that start each question waits for the driver's lock. They wait together, whenever it begins.
func TestQuestionsWaitTogether(t *testing.T) {
	for _, quick := range []int64{0, 1, 2, 8} {
		synctest.Test(t, func(t *testing.T) {
			fake, m := machine(t)
			_, g := startTenant(fake, 10)
			for _, c := range []struct {
				what string
				call func() error
				most time.Duration
			}{
				{"off", func() error { return m.Switch(t.Context(), []rm.Group{g}, false) }, 3 * wait}, // up to two alone; the others
				{"on", func() error { return m.Switch(t.Context(), []rm.Group{g}, true) }, 3 * wait},
				{"find", func() error { _, err := m.Find(t.Context(), g.Process); return err }, 750 * time.Millisecond},
				{"find again", func() error { _, err := m.Find(t.Context(), g.Process); return err }, 7 * wait},
			} {
				asked, _ := starts(fake, quick)
				began := time.Now()
				if err := c.call(); err != nil {
					t.Errorf("%s: %v", c.what, err)
				}
				took, n := time.Since(began), asked.Load()
				t.Logf("%s, %d quick: %v for %d questions", c.what, quick, took, n)
				if took > c.most || n < 3 {
					t.Errorf("%s, %d quick: took %v for %d questions, want at most %v", c.what, quick, took, n, c.most)
				}
			}
		})
	}
}

// A process with many channels, beside many other tenants, is found in one search.
func TestFindOfMuchBesideStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, m := machine(t)
		for pid := range 250 { // a search asks for their clients first
			_, g := startTenant(fake, 100+pid)
			found(t, m, g.Process, g)
			fake.Advance(time.Second) // so that the next search is not too soon
		}
		p, g := startTenant(fake, 10)
		g = p.AddChannels(g, 250)
		starts(fake, 0)
		began := time.Now()
		found(t, m, g.Process, g)
		if took := time.Since(began); took > 1100*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}

// However many processes are asked about at once, the calls that wait in the driver are bounded.
func TestWaitingCallsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, m := machine(t)
		var all []rm.Group
		for pid := range 20 {
			_, g := startTenant(fake, 10+pid)
			all = append(all, g)
		}
		_, most := starts(fake, 0)
		if _, err := m.SwitchAsOne(t.Context(), all, false); err != nil {
			t.Error(err)
		}
		if n := most.Load(); n < 64 || n > 64+int64(len(all)) {
			t.Errorf("%d calls waited at once, want 64 and one for each of %d files at most", n, len(all))
		}
	})
}

// A panic in a question that is asked beside others is the error of the call.
func TestPanicOfAQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, m := machine(t)
		_, g := startTenant(fake, 10)
		var asked atomic.Int64
		fake.Hook(func(c *rmtest.Call) {
			if c.Cmd == rmtest.CmdHandleInfo {
				if time.Sleep(wait); asked.Add(1) == 5 {
					panic("five")
				}
			}
		})
		for _, off := range []func() error{
			func() error { return m.Switch(t.Context(), []rm.Group{g}, false) },
			func() error { _, err := m.SwitchAsOne(t.Context(), []rm.Group{g}, false); return err },
		} {
			asked.Store(0)
			if err := off(); err == nil || errors.Is(err, rm.ErrChanged) || !strings.Contains(err.Error(), "panic: five") {
				t.Error(err)
			}
			if off := fake.Off(g); len(off) > 0 || fake.Held() != 0 {
				t.Errorf("channels %v are off, %d descriptors open", off, fake.Held())
			}
		}
	})
}
