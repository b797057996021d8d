package prometheus

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/exporter/task"
)

// builder puts nodes together, a series at a time, in any order.
type builder struct {
	nodes map[string]*placement.Node
	gpus  map[[2]string]*placement.GPU
	// work is by node, GPU and container.
	work map[[3]string]*work
}

type work struct {
	placement.Work
	due bool // it has an unfinished task with a deadline
}

// parse makes nodes of the series, in the order of their names. Series of other names are
// ignored; a missing one leaves what means "not a candidate".
func parse(v model.Vector) []placement.Node {
	b := builder{map[string]*placement.Node{}, map[[2]string]*placement.GPU{}, map[[3]string]*work{}}
	for _, s := range v {
		b.add(s)
	}
	for _, key := range sortedKeys(b.work) {
		// Who only holds memory has no deadline.
		if g, w := b.gpus[[2]string{key[0], key[1]}], b.work[key]; g != nil && w.due {
			g.Work = append(g.Work, w.Work)
		}
	}
	for key, g := range b.gpus {
		if n := b.nodes[key[0]]; n != nil {
			n.GPUs = append(n.GPUs, *g)
		}
	}
	out := make([]placement.Node, 0, len(b.nodes))
	for _, n := range b.nodes {
		slices.SortFunc(n.GPUs, func(a, b placement.GPU) int { return strings.Compare(a.UUID, b.UUID) })
		sum(n)
		out = append(out, *n)
	}
	slices.SortFunc(out, func(a, b placement.Node) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// sum fills in what a node is by its GPUs: a container gets one of them.
func sum(n *placement.Node) {
	for _, g := range n.GPUs {
		n.MemoryFree = max(n.MemoryFree, g.MemoryFree)
		if n.Fresh && g.Provisionable {
			n.Provisionable, n.Score = true, max(n.Score, float64(g.MemoryFree))
		}
	}
}

func sortedKeys(m map[[3]string]*work) [][3]string {
	keys := make([][3]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b [3]string) int { return slices.Compare(a[:], b[:]) })
	return keys
}

func (b *builder) add(s *model.Sample) {
	value := float64(s.Value)
	node, gpu := string(s.Metric["node"]), string(s.Metric["gpu"])
	switch name := string(s.Metric[model.MetricNameLabel]); name {
	case "node:seen:timestamp_seconds":
		b.node(node).Seen = moment(value)
	case "node:fresh:bool":
		b.node(node).Fresh = value == 1
	case "node:float:seconds":
		b.node(node).Float = task.Seconds(value)
	case "gpu_info":
		g := b.gpu(node, gpu)
		g.Name, g.Driver = string(s.Metric["name"]), string(s.Metric["driver"])
		card, _, _ := strings.Cut(string(s.Metric["index"]), ":") // 1:0 is an instance of card 1
		if i, err := strconv.Atoi(card); err == nil {
			g.Index = i
		}
	case "gpu_task_float_seconds", "gpu_task_work_seconds", "gpu_container_memory_used_bytes":
		setWork(b.task(node, gpu, string(s.Metric["container"])), name, value)
	case "gpu_open", "gpu_memory_provisionable_bytes", "gpu_memory_total_bytes", "gpu_memory_free_bytes", "gpu_utilization_ratio":
		setGPU(b.gpu(node, gpu), name, value)
	}
}

func (b *builder) node(name string) *placement.Node {
	n := b.nodes[name]
	if n == nil {
		n = &placement.Node{Name: name, Float: task.Seconds(math.Inf(1))}
		b.nodes[name] = n
	}
	return n
}

func (b *builder) gpu(node, uuid string) *placement.GPU {
	key := [2]string{node, uuid}
	g := b.gpus[key]
	if g == nil {
		g = &placement.GPU{UUID: uuid, Index: -1, Utilization: task.Ratio(math.NaN())}
		b.gpus[key] = g
	}
	return g
}

func (b *builder) task(node, gpu, container string) *work {
	key := [3]string{node, gpu, container}
	w := b.work[key]
	if w == nil {
		w = &work{Work: placement.Work{Container: container}}
		b.work[key] = w
	}
	return w
}

func setGPU(g *placement.GPU, name string, v float64) {
	switch name {
	case "gpu_open":
		g.Open = v == 1
	case "gpu_memory_provisionable_bytes":
		g.Provisionable = v > 0
	case "gpu_memory_total_bytes":
		g.MemoryTotal = bytes(v)
	case "gpu_memory_free_bytes":
		g.MemoryFree = bytes(v)
	case "gpu_utilization_ratio":
		g.Utilization = task.Ratio(v)
	}
}

func setWork(w *work, name string, v float64) {
	switch name {
	case "gpu_task_float_seconds":
		w.Due, w.due = task.Seconds(v), true
	case "gpu_task_work_seconds":
		w.Left = task.Seconds(v)
	case "gpu_container_memory_used_bytes":
		w.Memory = bytes(v)
	}
}

func moment(v float64) time.Time {
	if math.IsNaN(v) || v <= 0 || v > math.MaxInt64/1000 {
		return time.Time{}
	}
	return time.UnixMilli(int64(v * 1000))
}

func bytes(v float64) uint64 {
	if !(v > 0) {
		return 0
	}
	return uint64(min(v, math.MaxInt64))
}
