package placement

import (
	"cmp"
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/exporter/task"
)

// work is one task as it arrives. Times are seconds since the beginning.
type work struct {
	id                 int
	at, run, due, last float64 // due is absolute; last is when it asks in vain for the last time
	estimate           float64
	memory             uint64
}

const (
	nodeCount, perNode = 20, 2
	scrapeEvery        = 1.0
	askAgain           = 0.5
	memory80           = 80 * gib
)

func lognormal(r *rand.Rand, mean, sigma float64) float64 {
	return mean * math.Exp(sigma*r.NormFloat64()-sigma*sigma/2)
}

// arrivals makes the tasks of one run: the same for every way.
func arrivals(seed uint64, load, length float64) []work {
	r := rand.New(rand.NewPCG(seed, 1))
	rate := load * nodeCount * perNode / 4 // tasks run 4 s in the mean
	var out []work
	for at := r.ExpFloat64() / rate; at < length; at += r.ExpFloat64() / rate {
		run := min(max(lognormal(r, 4, 0.8), 0.5), 30)
		deadline := run * (1.5 + 4.5*r.Float64())
		out = append(out, work{id: len(out), at: at, run: run, due: at + deadline, last: at + deadline,
			estimate: lognormal(r, run, 0.2), memory: uint64(4+r.IntN(27)) * gib})
	}
	return out
}

// device is one GPU: at most one task runs, the others wait.
type device struct {
	node, gpu int
	running   *placed
	waiting   []*placed
	missed    bool    // a container that is still there missed its deadline
	spared    float64 // the sum of what the tasks of such containers had to spare
	ended     int     // how many such containers there are
	free      uint64
}

type placed struct {
	work
	began, ends float64
	device      *device
	shown       bool // a scrape has seen it
}

// outcome of one run.
type outcome struct{ tasks, hits, refused int }

// world is the simulated cluster.
type world struct {
	now     float64
	devices []*device
	facts   []placement.Node // of the last scrape
	unseen  []*placed        // promised since
	events  events
	way     string
	random  *rand.Rand
	result  outcome
}

// event is something that happens at a time: an arrival or a new question, the end
// of a task, a scrape.
type event struct {
	at    float64
	order int
	asks  *work
	ends  *placed
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].order < e[j].order
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}

// simulate runs the tasks to their ends.
func simulate(tasks []work, way string, seed uint64) outcome {
	w := &world{way: way, random: rand.New(rand.NewPCG(seed, 2))}
	for n := range nodeCount {
		for g := range perNode {
			w.devices = append(w.devices, &device{node: n, gpu: g, free: memory80})
		}
	}
	order := 0
	push := func(e event) { order++; e.order = order; heap.Push(&w.events, e) }
	for i := range tasks {
		push(event{at: tasks[i].at, asks: &tasks[i]})
	}
	w.result.tasks = len(tasks)
	open := len(tasks)
	push(event{at: 0})
	w.scrape()
	for open > 0 {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		switch {
		case e.ends != nil:
			open--
			if next := w.end(e.ends); next != nil {
				push(event{at: next.ends, ends: next})
			}
		case e.asks != nil:
			switch d := w.choose(*e.asks); {
			case d != nil:
				if p := w.put(*e.asks, d); p != nil {
					push(event{at: p.ends, ends: p})
				}
			case w.now+askAgain >= e.asks.last:
				open--
				w.result.refused++
			default:
				push(event{at: w.now + askAgain, asks: e.asks})
			}
		default:
			w.scrape()
			push(event{at: w.now + scrapeEvery})
		}
	}
	return w.result
}

// put places a task; it returns it if it runs at once.
func (w *world) put(t work, d *device) *placed {
	p := &placed{work: t, device: d}
	d.free -= t.memory
	w.unseen = append(w.unseen, p)
	d.waiting = append(d.waiting, p)
	if d.running == nil {
		return w.begin(d)
	}
	return nil
}

// begin takes the most urgent task that waits.
func (w *world) begin(d *device) *placed {
	if len(d.waiting) == 0 {
		return nil
	}
	i := 0
	for j := range d.waiting {
		if d.waiting[j].due < d.waiting[i].due {
			i = j
		}
	}
	p := d.waiting[i]
	d.waiting = slices.Delete(d.waiting, i, i+1)
	d.running, p.began, p.ends = p, w.now, w.now+p.run
	return p
}

// end counts a task, and returns the one that runs next.
func (w *world) end(p *placed) *placed {
	d := p.device
	d.running = nil
	d.free += p.memory
	p.shown = true
	if w.now <= p.due {
		w.result.hits++
	}
	if w.way == paperKept {
		d.missed = d.missed || w.now > p.due
		d.spared, d.ended = d.spared+p.due-w.now, d.ended+1
	}
	return w.begin(d)
}

// scrape makes the facts, as the exporters and the rules do.
func (w *world) scrape() {
	for _, d := range w.devices {
		for _, p := range d.waiting {
			p.shown = true
		}
		if d.running != nil {
			d.running.shown = true
		}
	}
	w.unseen = slices.DeleteFunc(w.unseen, func(p *placed) bool { return p.shown })
	w.facts = w.facts[:0]
	for n := range nodeCount {
		node := placement.Node{Name: fmt.Sprintf("node%02d", n), Fresh: true, Provisionable: true, Float: task.Seconds(math.Inf(1))}
		sum, ended := 0.0, 0
		for _, d := range w.devices[n*perNode : (n+1)*perNode] {
			sum, ended = sum+d.spared, ended+d.ended
			node.GPUs = append(node.GPUs, w.gpu(d))
		}
		if ended > 0 {
			node.Float = task.Seconds(sum)
		}
		w.facts = append(w.facts, node)
	}
}

func (w *world) gpu(d *device) placement.GPU {
	g := placement.GPU{UUID: fmt.Sprint("GPU-", d.gpu), MemoryTotal: memory80, MemoryFree: d.free, Open: d.free > memory80/200}
	add := func(p *placed, left float64) {
		g.Work = append(g.Work, placement.Work{Container: "c", Due: task.Seconds(p.due - w.now), Left: task.Seconds(left)})
	}
	if p := d.running; p != nil {
		g.Utilization = 1
		add(p, max(p.estimate-(w.now-p.began), 0.1*p.estimate))
	}
	for _, p := range d.waiting {
		add(p, p.estimate)
	}
	g.Provisionable = g.Open && g.Utilization < 1 && !d.missed
	return g
}

// choose returns where the task goes; nil is nowhere now.
func (w *world) choose(t work) *device {
	nodes := make([]placement.Node, len(w.facts))
	for i, n := range w.facts {
		nodes[i] = n
		nodes[i].GPUs = slices.Clone(n.GPUs)
	}
	for _, p := range w.unseen {
		c := placement.Claim{Node: fmt.Sprintf("node%02d", p.device.node), GPU: fmt.Sprint("GPU-", p.device.gpu), Memory: p.memory,
			Work: &placement.Work{Container: "c", Due: task.Seconds(p.due - w.now), Left: task.Seconds(p.estimate)}}
		placement.Reserve(nodes, c)
	}
	if method, err := placement.ParseMethod(strings.TrimSuffix(w.way, kept)); err == nil {
		req := placement.Request{Deadline: task.Seconds(t.due - w.now), GPUMemory: t.memory, Estimate: task.Seconds(t.estimate)}
		best, ok := method.Rank(nodes, req, time.Time{}).Best()
		if !ok {
			return nil
		}
		for _, d := range w.devices {
			if fmt.Sprintf("node%02d", d.node) == best.Node.Name && fmt.Sprint("GPU-", d.gpu) == best.GPU && d.free >= t.memory {
				return d
			}
		}
		return nil
	}
	return w.baseline(nodes, t)
}

// baseline is what needs no ranking: the GPU with the fewest unfinished tasks, or
// any, among those that have the memory.
func (w *world) baseline(nodes []placement.Node, t work) *device {
	type option struct {
		d     *device
		tasks int
	}
	var options []option
	for i, d := range w.devices {
		g := nodes[i/perNode].GPUs[i%perNode]
		if d.free >= t.memory && g.MemoryFree >= g.Reserved+t.memory {
			options = append(options, option{d, len(g.Work)})
		}
	}
	if len(options) == 0 {
		return nil
	}
	if w.way == "random" {
		return options[w.random.IntN(len(options))].d
	}
	return slices.MinFunc(options, func(a, b option) int { return cmp.Compare(a.tasks, b.tasks) }).d
}
