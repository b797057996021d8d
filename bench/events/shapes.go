package events

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/tenant"
	"github.com/laxity/laxity/exporter"
	"github.com/laxity/laxity/exporter/task"
)

// shape is a container that is more than one process on one GPU.
type shape struct {
	name      string
	processes int
	mib       [2]int // that each process allocates on each of two GPUs; 0: it does not use it
}

var shapes = []shape{
	{"three processes on the second GPU", 3, [2]int{0, 2048}},
	{"one process on both GPUs", 1, [2]int{2048, 4096}},
	{"two processes, each on both GPUs", 2, [2]int{4096, 2048}},
}

const (
	// shapeLimit is how long it may take until all of a shape is seen as it is.
	shapeLimit = 20 * time.Second
	// contextMost is more than a context takes, and less than any shape allocates, bytes.
	contextMost = 1 << 30
)

// showShapes starts each shape, and returns a row that says as what it was seen.
func showShapes(ctx context.Context, env bench.Env, runner *tenant.Runner, watched *exporter.Exporter) ([]bench.Row, error) {
	var rows []bench.Row
	for i, s := range shapes {
		name := fmt.Sprintf("laxity-bench-events-%d-shape-%d", os.Getpid(), i)
		c, err := runner.Start(ctx, tenant.Spec{Name: name, Args: s.args(), Env: []string{numbering}})
		if err != nil {
			return rows, err
		}
		row := s.await(ctx, watched, name)
		rows = append(rows, row)
		env.Log("%s: right %v", s.name, row["right"])
		if err := c.Remove(); err != nil {
			return rows, err
		}
	}
	return rows, ctx.Err()
}

func (s shape) args() []string {
	args := []string{"--context-only", "--hold", "3600", "--processes", strconv.Itoa(s.processes)}
	first := slices.IndexFunc(s.mib[:], func(mib int) bool { return mib > 0 })
	args = append(args, "--device", strconv.Itoa(first), "--alloc-extra", strconv.Itoa(s.mib[first]))
	if second := 1 - first; s.mib[second] > 0 {
		args = append(args, "--more", strconv.Itoa(s.mib[second]), "--more-device", strconv.Itoa(second))
	}
	return args
}

// await returns what was seen when that was right, or at last.
func (s shape) await(ctx context.Context, watched *exporter.Exporter, name string) bench.Row {
	ctx, cancel := context.WithTimeout(ctx, shapeLimit)
	defer cancel()
	began, row := time.Now(), bench.Row{}
	for snapshot := range watched.Watch(ctx) {
		row = s.seen(snapshot, name)
		if row["right"] == true {
			break
		}
	}
	row["way"], row["kind"], row["shape"], row["after_s"] = laxity, "shape", s.name, time.Since(began).Seconds()
	return row
}

// seen compares the container in a snapshot with the shape: each task's GPUs, and on each
// GPU the memory of the container, which is that of its tasks.
func (s shape) seen(snapshot *task.Snapshot, name string) bench.Row {
	var tasks []task.Task
	for _, t := range snapshot.Tasks {
		if t.Container == name && t.State == task.Running {
			tasks = append(tasks, t)
		}
	}
	right := len(tasks) == s.processes
	row := bench.Row{"processes": float64(s.processes), "tasks_seen": float64(len(tasks))}
	i := slices.IndexFunc(snapshot.Containers, func(c task.Container) bool { return c.Name == name })
	for _, gpu := range snapshot.GPUs {
		if gpu.Index >= len(s.mib) {
			continue
		}
		mib := s.mib[gpu.Index]
		var sum, all uint64
		for _, t := range tasks {
			sum += t.MemoryUsed[gpu.UUID]
			right = right && slices.Contains(t.GPUs, gpu.UUID) == (mib > 0)
		}
		if i >= 0 {
			all = snapshot.Containers[i].MemoryUsed[gpu.UUID]
		}
		least, most := uint64(0), uint64(0)
		if mib > 0 {
			least = uint64(s.processes*mib) << 20
			most = least + uint64(s.processes)*contextMost
		}
		right = right && all == sum && all >= least && all <= most
		row[fmt.Sprintf("gpu%d_mib", gpu.Index)] = float64(all) / (1 << 20)
	}
	row["right"] = right
	return row
}
