package admission_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/laxity/laxity/actuator/admission"
	"github.com/laxity/laxity/exporter/device/sim/compute"
)

const (
	ms         = time.Millisecond
	switchCost = 400 * time.Microsecond
	round      = 100 * time.Microsecond
)

// ladder are the slices that plan/ladder gives to servers.
func ladder(n int, shortest time.Duration) time.Duration {
	if n == 0 {
		return time.Second
	}
	return max(shortest/4, 2048*time.Microsecond)
}

func gpu(admitted ...admission.Demand) admission.GPU {
	return admission.GPU{Admitted: admitted, Slice: ladder, Switch: switchCost, Round: round}
}

func task(name string, need, within time.Duration) admission.Demand {
	return admission.Demand{Name: name, Need: need, Within: within}
}

func server(name string, need, within, every time.Duration) admission.Demand {
	return admission.Demand{Name: name, Need: need, Within: within, Server: true, Every: every}
}

func TestWords(t *testing.T) {
	s := time.Second
	for _, tc := range []struct {
		about string
		gpu   admission.GPU
		d     admission.Demand
		want  string
	}{
		{"alone", gpu(), task("c", s, 2*s), ""},
		{"it was too long beside others", gpu(), admission.Demand{Name: "c", Need: s, Alone: 3 * s, Within: 2 * s, Beside: true}, "it takes 3s by earlier runs, not all with the GPU to itself, and is due in 2s"},
		{"it is too long by itself", gpu(), admission.Demand{Name: "c", Need: s, Alone: 3 * s, Within: 2 * s}, "it takes 3s with the GPU to itself, and is due in 2s"},
		{"earlier work leaves too little", gpu(task("a", 800*ms, s), task("b", 100*ms, 2*s)), task("c", 1500*ms, 2*s),
			"it needs 1.5s of GPU time before its deadline in 2s; 1.1s is free beside a and b"},
		{"later work does not matter", gpu(task("a", 2*s, 9*s)), task("c", 1500*ms, 2*s), ""},
		{"a later one would miss its own", gpu(task("a", 2*s, 3*s)), task("c", 1500*ms, 2*s),
			"with it a would miss its deadline: a needs 2s of GPU time before its deadline in 3s; 1.5s is free beside c"},
		{"who misses anyway is no reason", gpu(task("a", 4*s, 3*s)), task("c", 1500*ms, 2*s), ""},
		{"half of the time is promised", admission.GPU{Promised: 0.5, Slice: ladder}, task("c", 1500*ms, 2*s),
			"it needs 1.5s of GPU time before its deadline in 2s; 1s is free"},
		{"a preemption takes time", admission.GPU{Blocking: 600 * ms, Slice: ladder}, task("c", 1500*ms, 2*s),
			"it needs 1.5s of GPU time before its deadline in 2s; 1.4s is free"},
		{"requests come first", gpu(server("web", 10*ms, 20*ms, 20*ms)), task("c", 1500*ms, 2*s),
			"it needs 1.5s of GPU time before its deadline in 2s; 909ms is free beside web"},
		{"requests take turns", gpu(server("a", 20*ms, 30*ms, 100*ms)), server("b", 9*ms, 20*ms, 100*ms),
			"with it a would miss its deadline: a needs 20ms of GPU time for each request, due in 30ms; nothing is free when all come at once beside b"},
		{"requests leave nothing", gpu(server("a", 50*ms, 60*ms, 60*ms), server("b", ms, 60*ms, 50*ms)), server("c", 9*ms, 90*ms, 40*ms),
			"its requests want 24 % of the GPU; 12 % is free beside a and b"},
		{"many others", gpu(task("a", s, s), task("b", s, s), task("c", s, s), task("d", s, s), task("e", s, s)), task("f", s, 2*s),
			"it needs 1s of GPU time before its deadline in 2s; nothing is free beside a, b, c, d and 1 more"},
	} {
		if got := tc.gpu.Admit(tc.d).Words(tc.d.Name, tc.gpu.Beside()); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.about, got, tc.want)
		}
	}
}

func TestEarliest(t *testing.T) {
	g := gpu(task("a", 2*time.Second, 3*time.Second))
	d := task("c", 1500*ms, 2*time.Second)
	if got := g.Earliest(d); got < 3500*ms || got > 3540*ms {
		t.Errorf("%v, want 3.5s and at most a hundredth more", got)
	}
	g.Promised = 1
	if got := g.Earliest(d); got != 0 {
		t.Errorf("%v on a GPU whose time is all promised", got)
	}
}

// drawn are demands that arrive one after another; those that Admit has nothing against are admitted.
func drawn(t *rapid.T) (g admission.GPU, refused []admission.Demand) {
	g = gpu()
	span := func(from, to int, what string) time.Duration {
		return time.Duration(rapid.IntRange(from, to).Draw(t, what)) * 100 * time.Microsecond
	}
	for i := range rapid.IntRange(1, 10).Draw(t, "n") {
		d := admission.Demand{Name: fmt.Sprint(i), Need: span(2, 150, "need"), Within: span(50, 1000, "within")}
		if d.Server = rapid.Bool().Draw(t, "server"); d.Server {
			d.Every = span(50, 2000, "every")
		}
		if g.Admit(d).Kind == admission.None {
			g.Admitted = append(g.Admitted, d)
		} else {
			refused = append(refused, d)
		}
	}
	return g, refused
}

// TestAdmittedMeetTheirDeadlines runs what was admitted on the simulated GPU: servers in turns with the slices of
// plan/ladder, their requests as early as they may and later; beside them the task with the earliest deadline.
func TestAdmittedMeetTheirDeadlines(t *testing.T) {
	servers, tasks := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		g, _ := drawn(t)
		if trouble := g.Check(); trouble.Kind != admission.None {
			t.Fatalf("admitted one by one, and together: %+v", trouble)
		}
		late, n := simulate(g, rapid.Uint64().Draw(t, "seed"), 2*time.Second)
		if len(late) > 0 {
			t.Fatalf("%v\nadmitted: %+v", late, g.Admitted)
		}
		servers, tasks = servers+n, tasks+len(g.Admitted)
	})
	if servers == 0 || tasks == 0 {
		t.Fatal("nothing was admitted in any world")
	}
	t.Logf("%d requests of admitted servers", servers)
}

// TestRiskIsKept: of the requests of servers that were admitted with a risk, no more than that are late, all worlds together.
func TestRiskIsKept(t *testing.T) {
	const risk = 0.001
	requests, late, more := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		g := gpu()
		g.Risk = risk
		strict := g
		strict.Risk = 0
		for i := range rapid.IntRange(2, 12).Draw(t, "n") {
			d := server(fmt.Sprint(i), time.Duration(rapid.IntRange(10, 80).Draw(t, "need"))*100*time.Microsecond,
				time.Duration(rapid.IntRange(12, 50).Draw(t, "within"))*ms, time.Duration(rapid.IntRange(30, 100).Draw(t, "every"))*ms)
			if g.Admit(d).Kind == admission.None {
				g.Admitted = append(g.Admitted, d)
			}
			if strict.Admit(d).Kind == admission.None {
				strict.Admitted = append(strict.Admitted, d)
			}
		}
		were, n := simulate(g, rapid.Uint64().Draw(t, "seed"), 5*time.Second)
		late, requests, more = late+len(were), requests+n, more+len(g.Admitted)-len(strict.Admitted)
	})
	t.Logf("%d of %d requests are late; %d servers more than without risk", late, requests, more)
	if float64(late) > risk*float64(requests) || more <= 0 {
		t.Errorf("%d of %d requests are late; %d servers more than without risk", late, requests, more)
	}
}

// TestOverloadIsTold: whatever the deadlines, more than the whole GPU is never admitted.
func TestOverloadIsTold(t *testing.T) {
	told := 0
	rapid.Check(t, func(t *rapid.T) {
		g, refused := drawn(t)
		load := 0.0
		for _, d := range g.Admitted {
			if d.Server {
				load += float64(d.Need) / float64(d.Every)
			}
		}
		if load > 1 {
			t.Fatalf("admitted %.2f of the GPU: %+v", load, g.Admitted)
		}
		g.Admitted = append(g.Admitted, refused...)
		all := 0.0
		for _, d := range g.Admitted {
			if d.Server {
				all += float64(d.Need) / float64(d.Every)
			}
		}
		if all > 1 && g.Check().Kind == admission.None {
			t.Fatalf("%.2f of the GPU, and nothing is told: %+v", all, g.Admitted)
		}
		if all > 1 {
			told++
		}
	})
	if told == 0 {
		t.Fatal("no world was overloaded")
	}
}

// job is a demand on the simulated GPU.
type job struct {
	admission.Demand
	owner    compute.Owner
	next     time.Time // release
	released time.Time
	op       *compute.Op
	done     bool // of a task
}

// simulate says who was late, and how many requests there were.
func simulate(g admission.GPU, seed uint64, length time.Duration) (late []string, requests int) {
	r := rand.New(rand.NewPCG(seed, 1))
	u := compute.NewUnit(0, g.Switch)
	now := time.Unix(1_700_000_000, 0)
	end := now.Add(length)
	u.Advance(now)
	var jobs []*job
	for i, d := range g.Admitted {
		j := &job{Demand: d, owner: compute.Owner(i), next: now}
		if d.Server && r.IntN(2) == 0 {
			j.next = now.Add(time.Duration(r.Int64N(int64(d.Every))))
		}
		jobs = append(jobs, j)
	}
	slices.SortStableFunc(jobs, func(a, b *job) int { return cmp.Compare(a.Within, b.Within) })
	n := 0
	for _, j := range jobs {
		u.SetSlice(now, j.owner, round)
		if j.Server {
			u.SetSlice(now, j.owner, g.Slice(n, jobs[slices.IndexFunc(jobs, func(j *job) bool { return j.Server })].Within))
			n++
		}
	}
	for now.Before(end) {
		first := true
		for _, j := range jobs {
			if j.op != nil {
				select {
				case <-j.op.Done():
					if took := j.op.Ended().Sub(j.released); took > j.Within {
						late = append(late, fmt.Sprintf("%s took %v, due in %v", j.Name, took, j.Within))
					}
					j.op, j.done = nil, !j.Server
				default:
				}
			}
			if !j.done && j.op == nil && !j.next.After(now) {
				need := j.Need
				if r.IntN(3) == 0 {
					need -= time.Duration(r.Int64N(int64(j.Need / 2)))
				}
				j.released, j.op = now, u.Launch(now, j.owner, need)
				if j.Server {
					requests++
					j.next = now.Add(j.Every + time.Duration(r.IntN(2)*r.IntN(int(20*ms))))
				}
			}
			if !j.Server { // the first of the tasks only
				u.Switch(now, j.owner, first && j.op != nil)
				first = first && j.op == nil
			}
		}
		to := end
		if t, ok := u.Next(); ok && t.Before(to) {
			to = t
		}
		for _, j := range jobs {
			if j.Server && j.op == nil && j.next.Before(to) {
				to = j.next
			}
		}
		if !to.After(now) {
			to = now.Add(time.Nanosecond)
		}
		now = to
		u.Advance(now)
	}
	for _, j := range jobs {
		if !j.Server && !j.done {
			late = append(late, j.Name+" did not end")
		}
	}
	return late, requests
}

func TestShort(t *testing.T) {
	g := gpu()
	d := server("x", 12345678*time.Nanosecond, 3*ms, time.Hour)
	if got := g.Admit(d).Words("x", nil); !strings.Contains(got, "12.3ms") {
		t.Errorf("%q", got)
	}
}
