package placement

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/common/model"
)

const gib = 1 << 30

// cluster answers PromQL as Prometheus would with the repository's rules: facts of
// the last scrape, older than what is true. It implements prometheus.Querier.
type cluster struct {
	scrape time.Duration
	nodes  int

	mu      sync.Mutex
	gpus    []*card
	byID    map[string]*box
	shown   model.Vector // of the last scrape
	tenants map[string]model.Vector
}

// card is one GPU.
type card struct {
	node, uuid string
	total      uint64
	used       uint64
}

// box is a container: it holds nothing until its task has begun.
type box struct {
	id   string
	gpu  *card
	held uint64
}

func newCluster(nodes, gpus int, memory uint64, scrape time.Duration) *cluster {
	c := &cluster{scrape: scrape, nodes: nodes, byID: map[string]*box{}, tenants: map[string]model.Vector{}}
	for n := range nodes {
		for g := range gpus {
			c.gpus = append(c.gpus, &card{node: fmt.Sprintf("node%02d", n), uuid: fmt.Sprintf("GPU-%02d-%d", n, g), total: memory})
		}
	}
	c.show()
	return c
}

// run shows the state anew at every scrape.
func (c *cluster) run(ctx context.Context) {
	tick := time.NewTicker(c.scrape)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			c.show()
		case <-ctx.Done():
			return
		}
	}
}

// start makes a container on the GPU; it takes its memory after a while.
func (c *cluster) start(id, gpu string, memory uint64, after time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, g := range c.gpus {
		if g.uuid != gpu {
			continue
		}
		b := &box{id: id, gpu: g}
		c.byID[id] = b
		time.AfterFunc(after, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			b.held = memory
			g.used += memory
		})
	}
}

func (c *cluster) show() {
	c.mu.Lock()
	defer c.mu.Unlock()
	var v model.Vector
	now := float64(time.Now().UnixMilli()) / 1000
	seen := map[string]bool{}
	for _, g := range c.gpus {
		if !seen[g.node] {
			seen[g.node] = true
			for name, value := range map[string]float64{"node:fresh:bool": 1, "node:seen:timestamp_seconds": now} {
				v = append(v, sample(name, value, "node", g.node))
			}
		}
		free := float64(g.total - min(g.used, g.total))
		for name, value := range map[string]float64{"gpu_memory_provisionable_bytes": free, "gpu_open": 1,
			"gpu_memory_free_bytes": free, "gpu_memory_total_bytes": float64(g.total)} {
			v = append(v, sample(name, value, "node", g.node, "gpu", g.uuid))
		}
	}
	tenants := make(map[string]model.Vector, len(c.byID))
	for id, b := range c.byID {
		t := model.Vector{sample("", 1, "fact", "known", "id", id)}
		if b.held > 0 {
			t = append(t, sample("", float64(b.held), "fact", "memory", "id", id, "gpu", b.gpu.uuid), sample("", 1, "fact", "tasks", "id", id))
		}
		tenants[id] = t
	}
	c.shown, c.tenants = v, tenants
}

func sample(name string, value float64, labels ...string) *model.Sample {
	m := model.Metric{}
	if name != "" {
		m[model.MetricNameLabel] = model.LabelValue(name)
	}
	for i := 0; i+1 < len(labels); i += 2 {
		m[model.LabelName(labels[i])] = model.LabelValue(labels[i+1])
	}
	return &model.Sample{Metric: m, Value: model.SampleValue(value)}
}

var idsOf = regexp.MustCompile(`gpu_container_info\{node=~"[^"]*",id=~"([^"]*)"`)

// Query implements prometheus.Querier.
func (c *cluster) Query(_ context.Context, expr string, _ time.Time) (model.Vector, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if strings.HasPrefix(expr, "count(") {
		return model.Vector{sample("", float64(c.nodes))}, nil
	}
	m := idsOf.FindStringSubmatch(expr)
	var v model.Vector
	if !strings.HasPrefix(expr, "node:fresh:bool{") { // not for the containers alone
		v = slices.Clone(c.shown)
	}
	if m == nil {
		return v, nil
	}
	for id := range strings.SplitSeq(m[1], "|") {
		v = append(v, c.tenants[id]...)
	}
	return v, nil
}

// need is a container's GPU memory: whole GiB, bytes.
func need(random *rand.Rand) uint64 { return uint64(4+random.IntN(5)) * gib }
