package gate_test

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/enforce/gate"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/internal/cudaprobe/cudatest"
)

const create = "cuCtxCreate_v2"

// known is a program in container a, which the gate has looked at before it calls
// cuInit. Another one has shown it the library.
func known(t *testing.T, r *rig, b cudatest.Built) *cudatest.Program {
	t.Helper()
	p, other := b.Start(t), r.join(t, b, "b")
	r.members.Store(p.PID, "a")
	r.Arbitrate([]gate.Target{{ID: "a", PID: p.PID}, {ID: "b", PID: other.PID}})
	r.await(t, "a", "looked at", func(v gate.View) bool { return !v.Looking })
	return p
}

func (r *rig) stands(t *testing.T) {
	t.Helper()
	v := r.await(t, "a", "standing before its context", func(v gate.View) bool { return !v.Stands.IsZero() })
	if v.Phase != plan.Preparing || !v.Back || !v.Still {
		t.Fatalf("%+v", v)
	}
}

// Who is kept back stops before its context, whether it was said before its cuInit
// or after, goes on when it is called forth, and waits at its launch all the same.
func TestBack(t *testing.T) {
	for name, before := range map[string]bool{"said before cuInit": true, "after": false} {
		t.Run(name, func(t *testing.T) {
			r, b := start(t, nil), cudatest.Build(t)
			p := known(t, r, b)
			back := func() {
				if err := r.Back("a"); err != nil {
					t.Fatal(err)
				}
			}
			if before {
				back()
			}
			p.Call("cuInit")
			r.phase(t, "a", plan.Preparing)
			r.gated(t, p.PID, 1)
			back()
			called := p.Begin(create)
			r.stands(t)
			back() // again
			r.Forth("a")
			called()
			if err := r.Back("a"); !errors.Is(err, gate.ErrUnderWay) {
				t.Error("it has its context, and:", err)
			}
			r.Forth("a")
			called = p.Begin("cuLaunchKernel")
			if v := r.phase(t, "a", plan.Waiting); v.Admitted || v.Back {
				t.Errorf("%+v", v)
			}
			r.admit(t, "a")
			called()
		})
	}
}

// Nobody stands there for ever: whoever is admitted, or let go by the guardian, or
// whose gate nobody renews, goes on.
func TestBackEnds(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *rig){
		"admitted": func(t *testing.T, r *rig) { r.admit(t, "a") },
		"let go": func(t *testing.T, r *rig) {
			if n, err := gate.LetGo(t.Context(), gate.LetGoOptions{Name: r.name}); n != 1 || err != nil {
				t.Error(n, err)
			}
		},
		"expired": func(t *testing.T, r *rig) {
			if err := r.Renew(0); err != nil {
				t.Error(err)
			}
			if n, err := gate.LetGo(t.Context(), gate.LetGoOptions{Name: r.name, IfExpired: true}); n != 1 || err != nil {
				t.Error(n, err)
			}
		},
		"not to be held any more": func(_ *testing.T, r *rig) { r.Arbitrate(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			r, b := start(t, nil), cudatest.Build(t)
			p := known(t, r, b)
			if err := r.Back("a"); err != nil {
				t.Fatal(err)
			}
			p.Call("cuInit")
			r.gated(t, p.PID, 1)
			called := p.Begin(create)
			r.stands(t)
			end(t, r)
			called()
		})
	}
}

// One that stands there and is asked to end does.
func TestBackAskedToEnd(t *testing.T) {
	r, b := start(t, nil), cudatest.Build(t)
	p := known(t, r, b)
	if err := r.Back("a"); err != nil {
		t.Fatal(err)
	}
	p.Call("cuInit")
	r.gated(t, p.PID, 1)
	p.Begin(create)
	r.stands(t)
	if err := syscall.Kill(p.PID, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	r.await(t, "a", "ended", func(v gate.View) bool { return len(v.PIDs) == 0 })
}

// A container that stands before its context for more than a moment is paused, and
// goes on up to its launch when it is called forth; one that has begun to start up is
// paused at once, and not unpaused by anybody but the plan.
func TestBackIsPaused(t *testing.T) {
	h := newHouse(t)
	e, j := h.enforcer(0)
	id := h.script("/bin/sh", "-c", "LAXITY_SIM_INIT_SECONDS=1 /matmul --n 512 --kernels 1 --host-seconds 4")
	e.Cover([]gate.Target{h.target(id)})
	back := map[string]string{id: "lets another start up first"}
	waiting := map[string][]string{"gpu": {id}}
	e.Line(nil, waiting, back)
	h.tell(id, func() map[string]gate.View { return view(t, e) })
	hold := journal.Hold{ContainerID: id, Container: "name", Cause: string(plan.Start), Reason: "test", Since: time.Now(), Until: time.Now().Add(time.Hour), Expires: time.Now().Add(time.Hour)}

	h.await("it stands", func() bool { return !view(t, e)[id].Stands.IsZero() })
	if err := e.Pause(t.Context(), hold); err != nil {
		t.Fatal(err)
	}
	h.await("it is paused", func() bool { return h.paused(id) })
	if _, recorded, err := j.Get(id); !recorded || err != nil {
		t.Fatal("not on record:", err)
	}
	if s, err := e.Status(t.Context(), id); err != nil || !s.Paused {
		t.Fatalf("%+v %v", s, err)
	}
	e.Line(nil, waiting, nil)
	h.await("it goes on", func() bool {
		v := view(t, e)[id]
		return !h.paused(id) && v.Stands.IsZero() && v.Phase == plan.Preparing
	})

	if err := e.Pause(t.Context(), hold); err != nil {
		t.Fatal(err)
	}
	if !h.paused(id) {
		t.Fatal("it has its context, and is not paused")
	}
	e.Line(nil, waiting, back) // next in line: no reason to unpause it
	time.Sleep(200 * time.Millisecond)
	if _, recorded, err := j.Get(id); !h.paused(id) || !recorded || err != nil {
		t.Fatal("somebody else has unpaused it", err)
	}
	if err := e.ToLaunch(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if h.paused(id) {
		t.Fatal("still paused")
	}
	h.await("it waits at its launch", func() bool { return view(t, e)[id].Phase == plan.Waiting })
	e.Line(map[string][]string{"gpu": {id}}, nil, nil)
	if code, out := h.ended(id); code != 0 {
		t.Errorf("code %d:\n%s", code, out)
	}
}
