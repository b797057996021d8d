package rm_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/laxity/laxity/internal/rm"
	"github.com/laxity/laxity/internal/rm/rmtest"
)

// block makes the driver answer commands of this kind only after release is called.
func block(fake *rmtest.RM, cmd uint32) (release func()) {
	answer := make(chan struct{})
	fake.Hook(func(c *rmtest.Call) {
		if c.Cmd == cmd {
			<-answer
		}
	})
	return func() {
		fake.Hook(nil)
		close(answer)
		synctest.Wait()
	}
}

func TestOffThatComesTooLateIsUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, m := machine(t)
		_, g := startTenant(fake, 10)
		release := block(fake, rmtest.CmdDisable)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		err := m.Switch(ctx, []rm.Group{g}, false)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 100*time.Millisecond {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		release()
		if off := fake.Off(g); len(off) > 0 {
			t.Errorf("channels %v stay off", off)
		}
		if fake.Held() != 0 {
			t.Error("a duplicate outlives its call")
		}
	})
}

func TestCallsOfOneProcessKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, m := machine(t)
		_, g := startTenant(fake, 10)
		_, other := startTenant(fake, 11)
		release := block(fake, rmtest.CmdSetSlice)
		errs := make(chan error, 3)
		for i := range 3 {
			go func() { errs <- m.SetSlice(t.Context(), g, time.Duration(i+1)*time.Millisecond) }()
			synctest.Wait()
		}
		if d := must(m.Slice(t.Context(), other)); d == 0 { // another process does not wait
			t.Error(d)
		}
		release()
		for range 3 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		if d := must(m.Slice(t.Context(), g)); d != 3*time.Millisecond {
			t.Errorf("the last of three slices was 3 ms, and it is %v", d)
		}
	})
}

func TestWorkersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := rmtest.New(gpu0)
		var observed atomic.Int64
		m := rm.New(fake, rm.Options{Workers: 2, Timeout: time.Second, Observe: func(string, time.Duration, error) { observed.Add(1) }})
		var groups []rm.Group
		for pid := range 5 {
			_, g := startTenant(fake, 10+pid)
			groups = append(groups, g)
		}
		release := block(fake, rmtest.CmdGetSlice)
		errs := make(chan error, len(groups))
		for _, g := range groups {
			go func() {
				_, err := m.Slice(t.Context(), g)
				errs <- err
			}()
		}
		for range groups {
			if err := <-errs; !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		}
		if held := fake.Held(); held != 2 { // a duplicate each
			t.Errorf("%d descriptors are open while two workers are busy", held)
		}
		release()
		if fake.Held() != 0 || observed.Load() != 2 {
			t.Errorf("%d descriptors are open, and %d calls were observed", fake.Held(), observed.Load())
		}
		if _, err := m.Slice(t.Context(), groups[4]); err != nil {
			t.Errorf("after the driver answered: %v", err)
		}
	})
}

func TestKilledDuringASlowCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, m := machine(t)
		p, g := startTenant(fake, 10)
		release := block(fake, rmtest.CmdDisable)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := m.Switch(ctx, []rm.Group{g}, false); err == nil {
			t.Error("a call that has not ended succeeded")
		}
		p.Kill()
		if fake.Clients() != 1 {
			t.Error("the duplicate does not keep the client: this test tests nothing")
		}
		release()
		if n := fake.Clients(); n != 0 {
			t.Errorf("%d clients of a dead process live on", n)
		}
	})
}

// Whatever happens in between: an error of off leaves nothing off, a success all off; no
// duplicate outlives its call; a dead process has no clients; nothing but ours is touched.
func TestSwitchProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		fake := rmtest.New(gpu0, gpu1)
		m := rm.New(fake, rm.Options{Gap: 32, Timeout: patience})
		if err := m.Mark(t.Context()); err != nil {
			rt.Fatal(err)
		}
		fake.Advance(time.Second)
		_, bystander := startTenant(fake, 9)
		p := fake.Start(10)
		var clients []uint32
		contexts := 0
		grow := func(rt *rapid.T) {
			switch pick := rapid.SampledFrom([]string{"file", "context", "channels", "others"}).Draw(rt, "grow"); {
			case pick == "file" && len(clients) < 3 || len(clients) == 0:
				clients = append(clients, p.OpenFile(5+len(clients)))
			case pick == "context" && contexts < 4 || contexts == 0:
				p.Context(rapid.SampledFrom(clients).Draw(rt, "client"), rapid.IntRange(0, 1).Draw(rt, "gpu"))
				contexts++
			case pick == "channels":
				g := rapid.SampledFrom(must(m.Find(t.Context(), p.ID()))).Draw(rt, "group")
				p.AddChannels(g, rapid.IntRange(1, 130).Draw(rt, "channels"))
			default:
				fake.SkipClients(rapid.IntRange(0, 100).Draw(rt, "clients"))
			}
		}
		grow(rt)
		grow(rt)
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			if rapid.Bool().Draw(rt, "grows") {
				grow(rt)
			}
			groups := must(m.Find(t.Context(), p.ID()))
			if len(groups) != contexts {
				rt.Fatalf("%d groups of %d contexts are found", len(groups), contexts)
			}
			on, refuse, n := rapid.Bool().Draw(rt, "on"), rapid.IntRange(0, 8).Draw(rt, "refuse"), 0
			kill := rapid.IntRange(0, 200).Draw(rt, "kill")
			var ioctls atomic.Int64 // while the driver is slow, several are asked at once
			fake.Hook(func(c *rmtest.Call) {
				if ioctls.Add(1) == int64(kill) {
					p.Kill()
				}
				if c.Cmd == rmtest.CmdDisable && c.Params[0] == 1 {
					if n++; n == refuse {
						c.Status = rmtest.StatusInvalidState
					}
				}
			})
			err := m.Switch(t.Context(), groups, on)
			fake.Hook(nil)
			if fake.Held() != 0 {
				rt.Fatalf("%d descriptors stay open", fake.Held())
			}
			if len(fake.Off(bystander)) > 0 {
				rt.Fatal("a process that nobody asked for is off")
			}
			if kill > 0 && ioctls.Load() >= int64(kill) {
				if fake.Clients() != 1 {
					rt.Fatalf("%d clients live, of the bystander and a dead process", fake.Clients())
				}
				return
			}
			for _, g := range groups {
				want := 0
				if !on && err == nil {
					want = len(g.Channels)
				}
				if off := fake.Off(g); len(off) != want {
					rt.Fatalf("on %v, error %v: %d of %d channels are off", on, err, len(off), len(g.Channels))
				}
			}
			if on && err != nil {
				rt.Fatal(err)
			}
		}
	})
}

func ExampleManager_Switch() {
	fake := rmtest.New(gpu0)
	m := rm.New(fake, rm.Options{Timeout: time.Minute})
	_ = m.Mark(context.Background())
	fake.Advance(time.Second)
	p, _ := startTenant(fake, 10)
	groups, err := m.Find(context.Background(), p.ID())
	fmt.Println(len(groups), err)
	fmt.Println(m.Switch(context.Background(), groups, false), len(fake.Off(groups[0])))
	fmt.Println(m.Switch(context.Background(), groups, true), len(fake.Off(groups[0])))
	// Output:
	// 1 <nil>
	// <nil> 8
	// <nil> 0
}
