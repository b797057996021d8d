package admission

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/laxity/laxity/actuator/plan/ladder"
	"github.com/laxity/laxity/actuator/policy"
	"github.com/laxity/laxity/exporter/device/sim/compute"
	"github.com/laxity/laxity/exporter/task"
)

// server is a container whose requests come again and again.
type server struct {
	deadline time.Duration
	need     time.Duration // of the longest request
	every    time.Duration // mean time between two
	clients  bool          // they come at random, else like the frames of a camera
}

// arrive is the time from one request to the next.
func (s server) arrive(r *rand.Rand) time.Duration {
	if s.clients {
		return time.Duration(r.ExpFloat64() * float64(s.every))
	}
	return time.Duration((0.95 + 0.1*r.Float64()) * float64(s.every))
}

// takes is the GPU time of one request.
func (s server) takes(r *rand.Rand) time.Duration {
	return time.Duration((0.8 + 0.2*r.Float64()) * float64(s.need))
}

const meanTakes = 0.9 // of need

// draw makes servers whose requests together want the part load of the GPU.
func draw(r *rand.Rand, n int, load float64, clients bool) []server {
	all := make([]server, n)
	weights, sum := make([]float64, n), 0.0
	for i := range all {
		all[i] = server{clients: clients,
			deadline: 20*time.Millisecond + time.Duration(r.Int64N(int64(80*time.Millisecond))),
			need:     time.Millisecond + time.Duration(r.Int64N(int64(7*time.Millisecond)))}
		weights[i] = 0.5 + r.Float64()
		sum += weights[i]
	}
	for i := range all {
		all[i].every = time.Duration(meanTakes * float64(all[i].need) / (load * weights[i] / sum))
	}
	return all
}

// count is what became of one server's requests that are due before the end.
type count struct{ requests, inTime int }

// worker is a server on the simulated GPU: one request after another.
type worker struct {
	server
	count
	owner   compute.Owner
	comes   *rand.Rand // when requests come
	sizes   *rand.Rand
	next    time.Time
	end     time.Time   // of the world
	waiting []time.Time // starts of the requests that have come; the first one computes
	op      *compute.Op
}

// trainer is the owner of the container of class batch, which always has work.
const trainer = compute.Owner(-1)

// simulate runs the servers beside a container of class batch for so long: with Laxity's slices, or those
// of the driver. The same seed lets the same requests come whoever else runs.
func simulate(all []server, runs []bool, planned bool, seed uint64, length time.Duration) []count {
	u := compute.NewUnit(ladder.DefaultSlice, ladder.SwitchCost)
	now := epoch
	u.Advance(now)
	var workers []*worker
	for i, s := range all {
		if runs[i] {
			w := &worker{server: s, owner: compute.Owner(i), end: now.Add(length),
				comes: rand.New(rand.NewPCG(seed, uint64(2*i))), sizes: rand.New(rand.NewPCG(seed, uint64(2*i+1)))} //nolint:gosec // not a secret
			w.next = now.Add(s.arrive(w.comes))
			workers = append(workers, w)
		}
	}
	if planned {
		slices := slicesOf(workers)
		for _, w := range workers { // in one order, which is that of their turns
			u.SetSlice(now, w.owner, slices[w.owner])
		}
		u.SetSlice(now, trainer, slices[trainer])
	}
	u.Launch(now, trainer, 2*length)
	for end := now.Add(length); now.Before(end); {
		to := end
		if t, ok := u.Next(); ok && t.Before(to) {
			to = t
		}
		for _, w := range workers {
			if w.next.Before(to) {
				to = w.next
			}
		}
		now = cmp.Or(later(to, now), now.Add(1))
		u.Advance(now)
		for _, w := range workers {
			w.happen(u, now)
		}
	}
	counts := make([]count, len(all))
	for _, w := range workers {
		counts[w.owner] = w.count
	}
	return counts
}

func later(t, than time.Time) time.Time {
	if t.After(than) {
		return t
	}
	return time.Time{}
}

// happen lets the server end and begin requests.
func (w *worker) happen(u *compute.Unit, now time.Time) {
	if w.op != nil {
		select {
		case <-w.op.Done():
			if due := w.waiting[0].Add(w.deadline); !due.After(w.end) && !w.op.Ended().After(due) {
				w.inTime++
			}
			w.op, w.waiting = nil, w.waiting[1:]
		default:
		}
	}
	for !w.next.After(now) {
		w.waiting = append(w.waiting, w.next)
		if !w.next.Add(w.deadline).After(w.end) {
			w.requests++
		}
		w.next = w.next.Add(w.arrive(w.comes))
	}
	if w.op == nil && len(w.waiting) > 0 {
		w.op = u.Launch(now, w.owner, w.takes(w.sizes))
	}
}

// slicesOf are the slices that the plan gives to the servers and to the trainer.
func slicesOf(workers []*worker) map[compute.Owner]time.Duration {
	tenants := []ladder.Tenant{{ID: "-1", Container: "trainer", Name: "trainer", Labelled: true, HasTask: true, Measured: true,
		Job: policy.Job{Batch: true, Task: task.Task{ID: "trainer", Start: task.Mark{Time: epoch}}}}}
	for _, w := range workers {
		id := strconv.Itoa(int(w.owner))
		tenants = append(tenants, ladder.Tenant{ID: id, Container: id, Name: id, Labelled: true, Server: true, Deadline: w.deadline, Measured: true, Wants: ladder.No})
	}
	p := ladder.Make(ladder.Input{Now: epoch, Order: policy.EDF{Now: epoch}, Tenants: tenants}, ladder.State{})
	out := map[compute.Owner]time.Duration{}
	for id, s := range p.Standings {
		n, _ := strconv.Atoi(id)
		out[compute.Owner(n)] = s.Slice
	}
	return out
}

var epoch = time.Unix(1_700_000_000, 0)

// interval is when a server is busy.
type interval struct{ start, end time.Time }

// busyGap is the exporter's (--busy.gap): requests that follow each other more closely are one interval.
const busyGap = 10 * time.Millisecond

// alone are the busy intervals of a server that has the GPU to itself, as the exporter sees them.
func alone(s server, seed uint64, n int) []interval {
	r := rand.New(rand.NewPCG(seed, 7)) //nolint:gosec // not a secret
	var all []interval
	at, free := epoch, epoch
	for range 20 * n { // one that hardly rests ends few
		if len(all) > n {
			break
		}
		at = at.Add(s.arrive(r))
		begin := slices.MaxFunc([]time.Time{at, free}, time.Time.Compare)
		free = begin.Add(s.takes(r))
		if last := len(all) - 1; last >= 0 && begin.Sub(all[last].end) <= busyGap {
			all[last].end = free
			continue
		}
		all = append(all, interval{begin, free})
	}
	return all[:min(n, max(len(all)-1, 0))]
}

func name(i int) string { return fmt.Sprint("server-", i) }
