// Package papers is the baseline: GPU tasks found as P1 and P2 find them, by
// comparing the GPU's process list (nvidia-smi) with the process list of every
// container (docker top). A PID on both lists is a task, which starts when it
// appears and ends when it is gone.
package papers

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"

	"github.com/laxity/laxity/exporter/device"
)

// Monitor finds tasks by passes.
type Monitor struct {
	docker *client.Client
	// list returns the PIDs on the GPU.
	list func(ctx context.Context) ([]int, error)
}

// New makes a monitor. It asks nvidia-smi; or, when simulated is not nil, that
// device, which answers much faster than nvidia-smi would.
func New(dockerHost string, simulated device.Device) (*Monitor, error) {
	opts := []client.Opt{client.FromEnv, client.WithAPIVersionNegotiation()}
	if dockerHost != "" {
		opts = append(opts, client.WithHost(dockerHost))
	}
	docker, err := client.NewClientWithOpts(opts...)
	if err != nil {
		return nil, err
	}
	m := &Monitor{docker: docker, list: nvidiaSMI}
	if simulated != nil {
		m.list = func(ctx context.Context) ([]int, error) { return devicePIDs(ctx, simulated) }
	}
	return m, nil
}

// Close closes the connection to the engine.
func (m *Monitor) Close() error { return m.docker.Close() }

// Pass compares the lists once and returns the tasks it sees: PID → container.
func (m *Monitor) Pass(ctx context.Context) (map[int]string, error) {
	onGPU, err := m.list(ctx)
	if err != nil {
		return nil, err
	}
	seen := map[int]string{}
	containers, err := m.docker.ContainerList(ctx, container.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, c := range containers {
		top, err := m.docker.ContainerTop(ctx, c.ID, []string{"-eo", "pid"})
		if err != nil {
			continue // it has just ended
		}
		for _, row := range top.Processes {
			pid, err := strconv.Atoi(row[0])
			if err == nil && slices.Contains(onGPU, pid) {
				seen[pid] = strings.TrimPrefix(c.Names[0], "/")
			}
		}
	}
	return seen, nil
}

// Sighting is one task as the passes saw it.
type Sighting struct {
	Container  string
	Start, End time.Time // End is zero while it is seen
}

// Watch makes pass after pass until ctx ends, and returns what it saw and how
// long each pass took.
func (m *Monitor) Watch(ctx context.Context) (sightings []Sighting, passes []time.Duration, err error) {
	current := map[int]*Sighting{}
	for ctx.Err() == nil {
		began := time.Now()
		seen, err := m.Pass(ctx)
		if errors.Is(err, context.Canceled) {
			break
		}
		if err != nil {
			return sightings, passes, err
		}
		now := time.Now()
		passes = append(passes, now.Sub(began))
		for pid, name := range seen {
			if current[pid] == nil {
				current[pid] = &Sighting{Container: name, Start: now}
			}
		}
		for pid, s := range current {
			if _, still := seen[pid]; !still {
				s.End = now
				sightings = append(sightings, *s)
				delete(current, pid)
			}
		}
	}
	for _, s := range current {
		sightings = append(sightings, *s)
	}
	return sightings, passes, nil
}

func nvidiaSMI(ctx context.Context) ([]int, error) {
	out, err := exec.CommandContext(ctx, "nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader").Output()
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("nvidia-smi: %w", err)
	}
	var pids []int
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		if pid, err := strconv.Atoi(strings.TrimSpace(lines.Text())); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

func devicePIDs(ctx context.Context, d device.Device) ([]int, error) {
	r, err := d.Read(ctx)
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, g := range r.GPUs {
		for _, p := range g.Processes {
			pids = append(pids, p.PID)
		}
	}
	return pids, nil
}
