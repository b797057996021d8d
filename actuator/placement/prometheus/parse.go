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
	work map[[3]string]*placement.Work
}

// parse makes nodes of the recorded series, in the order of their names. Series
// of other names are ignored; a missing one leaves what means "not a candidate".
func parse(v model.Vector) []placement.Node {
	b := builder{map[string]*placement.Node{}, map[[2]string]*placement.GPU{}, map[[3]string]*placement.Work{}}
	for _, s := range v {
		b.add(s)
	}
	for _, key := range sortedKeys(b.work) {
		if g := b.gpus[[2]string{key[0], key[1]}]; g != nil {
			g.Work = append(g.Work, *b.work[key])
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
		out = append(out, *n)
	}
	slices.SortFunc(out, func(a, b placement.Node) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func sortedKeys(m map[[3]string]*placement.Work) [][3]string {
	keys := make([][3]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b [3]string) int { return slices.Compare(a[:], b[:]) })
	return keys
}

func (b *builder) add(s *model.Sample) {
	series, value := string(s.Metric[model.MetricNameLabel]), float64(s.Value)
	node, gpu := string(s.Metric["node"]), string(s.Metric["gpu"])
	level, fact, _ := strings.Cut(series, ":")
	switch level {
	case "node":
		setNode(b.node(node), fact, value)
	case "node_gpu":
		b.node(node)
		setGPU(b.gpu(node, gpu), fact, value)
	case "node_gpu_container":
		setWork(b.task(node, gpu, string(s.Metric["container"])), fact, value)
	case "gpu_memory_total_bytes":
		b.gpu(node, gpu).MemoryTotal = bytes(value)
	case "gpu_info":
		g := b.gpu(node, gpu)
		g.Name, g.Driver = string(s.Metric["name"]), string(s.Metric["driver"])
		if i, err := strconv.Atoi(string(s.Metric["index"])); err == nil {
			g.Index = i
		}
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
		g = &placement.GPU{UUID: uuid, Index: -1, Float: task.Seconds(math.Inf(1)), Utilization: task.Seconds(math.NaN())}
		b.gpus[key] = g
	}
	return g
}

func (b *builder) task(node, gpu, container string) *placement.Work {
	key := [3]string{node, gpu, container}
	w := b.work[key]
	if w == nil {
		w = &placement.Work{Container: container}
		b.work[key] = w
	}
	return w
}

func setNode(n *placement.Node, fact string, v float64) {
	switch fact {
	case "seen:timestamp_seconds":
		n.Seen = moment(v)
	case "fresh:bool":
		n.Fresh = v == 1
	case "provisionable:bool":
		n.Provisionable = v == 1
	case "float:seconds":
		n.Float = task.Seconds(v)
	case "memory_free:bytes":
		n.MemoryFree = bytes(v)
	case "rank:score":
		n.Score = v
	}
}

func setGPU(g *placement.GPU, fact string, v float64) {
	switch fact {
	case "provisionable:bool":
		g.Provisionable = v == 1
	case "open:bool":
		g.Open = v == 1
	case "float:seconds":
		g.Float = task.Seconds(v)
	case "memory_free:bytes":
		g.MemoryFree = bytes(v)
	case "utilization:ratio":
		g.Utilization = task.Seconds(v)
	case "deadline_missed:timestamp_seconds":
		g.Missed = moment(v)
	case "rank:score":
		g.Score = v
	}
}

func setWork(w *placement.Work, fact string, v float64) {
	switch fact {
	case "due:seconds":
		w.Due = task.Seconds(v)
	case "work:seconds":
		w.Left = task.Seconds(v)
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
