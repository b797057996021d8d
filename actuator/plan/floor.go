package plan

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/policy"
)

// Floor prevents starvation. Before each plan it says which containers run beside those whose turn
// it is:
//
//   - class batch, and tasks that cannot meet their deadline any more, get a Share of
//     each GPU's time while they want it, whoever comes before them; one container of
//     each at a time, the one that has waited longest first;
//   - who has waited behind others of its own place for as long as sharing the GPU with
//     them would have cost it (policy.DefaultPatience where nobody knows) runs beside
//     them from then on; after a moment, if one of them has computed for that long and is
//     not known to end.
//
// No container is held for that: what the floor gives comes from time slicing, as without us. Use
// one Floor for all plans. The zero value with a Share is ready.
type Floor struct {
	// Share of a GPU's time, above 0 and below 1; DefaultFloor if 0.
	Share float64

	// last is the time of the last plan, and computing how many computed on each GPU then.
	last      time.Time
	computing map[string]int
	accounts  map[account]*balance
	// joined have waited too long, by container id; they stay while they have tasks.
	joined map[string]bool
	// equals is the most others of its place that a waiting container has had at a time, by id.
	equals map[string]int
	// ran is how long each that had tasks at the last plan has computed since, by id.
	ran map[string]time.Duration
}

// DefaultFloor is the part of a GPU's time for containers that others come before.
const DefaultFloor = 0.05

// grain is the piece in which the floor is given: many times what a pause and an unpause take.
const grain = 250 * time.Millisecond

// deepest is the largest debt of an account: a launched kernel runs to its end, however long that
// takes.
const deepest = 10 * time.Second

// shortest is the least time that a container waits before it runs beside others.
const shortest = 2 * time.Second

// unseen is the longest time between two plans that counts.
const unseen = time.Second

// account stands for the containers of one place on one GPU.
type account struct {
	gpu   string
	place policy.Place
}

// balance is what an account is owed: time with the GPU to itself. Negative: it had too much.
type balance struct {
	owed  time.Duration
	given string // the container that runs beside the others for it
}

// Grant returns which containers run beside others, and why, by id: Input.Beside. Its input must be
// that of the plan that follows.
func (f *Floor) Grant(in Input) map[string]string {
	passed := min(max(0, in.Now.Sub(f.last)), unseen)
	if f.last.IsZero() {
		passed = 0
	}
	f.last = in.Now
	if in.Preemption == nil { // P3 as the paper has it
		return nil
	}
	p := &planner{in: in}
	out := map[string]string{}
	wanted := map[string][]placed{}
	seen, numbers := map[account]bool{}, map[string]int{}
	for _, g := range in.GPUs {
		if !g.Arbitrated {
			continue
		}
		numbers[g.UUID] = computing(in, g.UUID)
		all := p.wanting(g.UUID)
		wanted[g.UUID] = all
		for _, place := range []policy.Place{policy.Behind, policy.Last} {
			a := account{g.UUID, place}
			if !slices.ContainsFunc(all, func(c placed) bool { return c.place == place }) {
				continue
			}
			seen[a] = true
			if id := f.settle(a, passed, in.Now, all, max(numbers[g.UUID], f.computing[g.UUID]), p.cedes(g)); id != "" {
				out[id] = fmt.Sprintf("those that come last get %.0f %% of the GPU all the same (--batch-floor)", 100*f.share())
			}
		}
	}
	for a := range f.accounts {
		if !seen[a] {
			delete(f.accounts, a) // no container wants it: nothing is saved up
		}
	}
	f.run(in, passed)
	f.join(p, wanted, out)
	f.computing = numbers
	return out
}

func (f *Floor) share() float64 { return cmp.Or(f.Share, DefaultFloor) }

// settle books the time that has passed, and returns the container that runs for the account. all
// want the GPU; computing is how many divide its time. ceded: see cede.
func (f *Floor) settle(a account, passed time.Duration, now time.Time, all []placed, computing int, ceded bool) string {
	b := f.accounts[a]
	if b == nil {
		b = &balance{}
		if f.accounts == nil {
			f.accounts = map[account]*balance{}
		}
		f.accounts[a] = b
	}
	var members []placed
	mine, preceded := 0, false
	for _, c := range all {
		preceded = preceded || c.place < a.place && f.here(c.ID)
		if c.place == a.place {
			members = append(members, c)
			if f.here(c.ID) && c.computes() {
				mine++
			}
		}
	}
	before := b.owed
	b.owed += time.Duration(f.share() * float64(passed))
	if mine > 0 {
		b.owed -= passed * time.Duration(mine) / time.Duration(max(computing, mine))
	}
	if !preceded || ceded { // time that others did not want pays our debt, and makes no debt of theirs
		b.owed = max(b.owed, min(before, 0))
	}
	b.owed = min(max(b.owed, -deepest), 2*grain)
	if b.owed <= 0 || !slices.ContainsFunc(members, func(c placed) bool { return c.ID == b.given }) {
		b.given = ""
	}
	if b.given == "" && b.owed >= grain && mine == 0 {
		b.given = slices.MaxFunc(members, func(x, y placed) int { return cmp.Compare(x.waited(now), y.waited(now)) }).ID
	}
	return b.given
}

// join adds the containers that have waited too long behind others of their own place.
func (f *Floor) join(p *planner, wanted map[string][]placed, out map[string]string) {
	joined, others := map[string]bool{}, map[string]int{}
	for _, c := range p.in.Containers {
		waited := c.waited(p.in.Now)
		if len(c.Tasks) == 0 || !f.joined[c.ID] && waited == 0 {
			continue
		}
		first := c.Job(p.in.Order)
		mine, preceded, equals, most := p.place(first), false, 0, policy.DefaultPatience
		for _, g := range c.gpus() {
			for _, o := range wanted[g] {
				preceded = preceded || o.place < mine
				if o.place == mine && o.ID != c.ID {
					equals++
					if f.goesOn(p, o) {
						most = shortest
					}
				}
			}
		}
		if mine < policy.Behind {
			continue
		}
		others[c.ID] = max(equals, f.equals[c.ID]) // those that have ended would have shared, too
		if !f.joined[c.ID] && waited < min(p.patience(first, others[c.ID]), most) {
			continue
		}
		joined[c.ID] = true
		if out[c.ID] == "" && !preceded {
			out[c.ID] = "it has waited for as long as sharing the GPU would have cost it"
		}
	}
	f.joined, f.equals = joined, others
}

// run books the time that has passed for those that compute.
func (f *Floor) run(in Input, passed time.Duration) {
	ran := map[string]time.Duration{}
	for _, c := range in.Containers {
		if len(c.Tasks) == 0 {
			continue
		}
		if ran[c.ID] = f.ran[c.ID]; f.here(c.ID) && c.computes() {
			ran[c.ID] += passed
		}
	}
	f.ran = ran
}

// here reports whether a container had tasks at the last plan.
func (f *Floor) here(id string) bool {
	_, had := f.ran[id]
	return had
}

// goesOn reports whether a container has computed for so long that nobody need wait for it as long again: it is not
// known to end by then.
func (f *Floor) goesOn(p *planner, c placed) bool {
	_, places := p.in.Order.(policy.Placer)
	return places && f.ran[c.ID] >= policy.DefaultPatience && (!c.first.Known || c.first.Remaining > policy.DefaultPatience)
}

// patience is how long a job waits for others of its place. One after another they all end sooner
// than side by side, except a job that would have ended long ago: sharing would have cost it as
// much time per other job as it needs itself.
func (p *planner) patience(j policy.Job, others int) time.Duration {
	if _, ok := p.in.Order.(policy.Placer); !ok || !j.Known { // users of fifo and p3 get the order of starts
		return policy.DefaultPatience
	}
	return min(max(time.Duration(others)*j.Remaining, shortest), policy.DefaultPatience)
}

// wanting are the containers that want the GPU now and that the rule decides about.
func (p *planner) wanting(gpu string) []placed {
	var all []placed
	for i := range p.in.Containers {
		c := &p.in.Containers[i]
		if c.Controllable() && !c.Server && !c.NoMemory && c.Asked == "" && !c.Memory.Out && !c.Memory.Busy && c.Memory.Starved == "" &&
			c.Uses(gpu) {
			first := c.Job(p.in.Order)
			all = append(all, placed{c, first, p.place(first)})
		}
	}
	return all
}

// computing counts the containers that divide the GPU's time, including those that the rule does
// not decide about. Some servers among them are idle at the moment: so too little is booked, and
// too much is given.
func computing(in Input, gpu string) (n int) {
	for _, c := range in.Containers {
		if c.computes() && c.Uses(gpu) {
			n++
		}
	}
	return n
}

// computes reports whether the container may have work on the GPU.
func (c Container) computes() bool { return c.Standing == Runs && !c.NoMemory }

// place is the place of a job. In an order without places all jobs share one.
func (p *planner) place(j policy.Job) policy.Place {
	if o, ok := p.in.Order.(policy.Placer); ok {
		return o.Place(j)
	}
	return policy.Last
}

// placed is a container that wants a GPU.
type placed struct {
	*Container
	first policy.Job
	place policy.Place
}
