// Package peers measures what observing containers costs, and what is known of each of them
// afterwards, by our exporter and by two others. The programs of others are given by path; nothing
// of theirs is here.
package peers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/rig"
	"github.com/laxity/laxity/bench/tenant"
	"github.com/laxity/laxity/exporter/task"
)

const about = `Our exporter, cAdvisor and nvidia_gpu_exporter observe the same containers, one program after another in each
repeat, in an order that changes; each is started anew and observes for 12 s before it is measured. 20 containers multiply
5120² matrices in a loop; those beyond hold a context and compute nothing. Each program is scraped once a second, and then
every 15 s, as Prometheus's own configuration does. CPU is that of the program and of the children that it has waited for, in
seconds a minute, as the kernel counts it, in steps of 10 ms; memory is the program's alone. Values are medians over the
repeats, with their quartiles. What is known of a container is counted in the last answer by the same rule for all: a series
belongs to a container if a label has its name or its id; it tells the GPU memory if its name has gpu or accelerator, memory
and bytes; tasks if it has gpu and task; a deadline if it has deadline. A process that is told by its PID is counted apart: whoever
reads it has to find the container. cadvisor runs with its default flags, cadvisor-least for Docker's containers, CPU and memory
alone and without their labels. nvidia-gpu-exporter runs with --collect.compute-apps, and starts nvidia-smi at each scrape;
with -nvml it asks the driver itself. On a simulated GPU a script that answers with a page that does not change stands in
for nvidia-smi: the real one costs more. For the others no GPU is there to be asked; our exporter asks the simulated one over a
socket. No GPU task begins or ends while a program is measured.`

// The ways that are compared.
const (
	laxity        = "laxity"
	cadvisor      = "cadvisor"
	cadvisorLeast = "cadvisor-least"
	nvidiaSMI     = "nvidia-gpu-exporter"
	nvidiaNVML    = "nvidia-gpu-exporter-nvml"
)

var allWays = []string{laxity, cadvisor, cadvisorLeast, nvidiaSMI, nvidiaNVML}

// busy is how many containers compute; those beyond hold a context only.
const busy = 20

// Experiment is the cost of observing, beside others.
func Experiment() bench.Experiment {
	return bench.Experiment{
		Name: "peers", Title: "What observing containers costs, and what it tells, beside other exporters", About: about,
		Settings: []bench.Setting{
			{Name: cadvisor, Means: "path of cAdvisor's program; without it that way is left out", Part: true},
			{Name: nvidiaSMI, Means: "path of nvidia_gpu_exporter's program (utkuozdemir); without it that way is left out", Part: true},
			{Name: cadvisor + "-build", Means: "cAdvisor's public commit, and what was changed to build it"},
			{Name: nvidiaSMI + "-build", Means: "nvidia_gpu_exporter's public commit, and what was changed to build it"},
			{Name: "counts", Means: "numbers of containers; 20,100"},
			{Name: "repeats", Means: "how often each program is measured with each number; 5"},
			{Name: "often", Means: "how long it is scraped once a second; 20s"},
			{Name: "seldom", Means: "how long it is scraped every 15 s; 45s"},
			{Name: "settle", Means: "how long it observes before it is measured; 12s"},
		},
		Run: run, Figures: figures, Table: table,
	}
}

type settings struct {
	counts                []int
	repeats               int
	often, seldom, settle time.Duration
	programs              map[string]string // path, by way
}

func parse(env bench.Env) (s settings, err error) {
	s = settings{counts: []int{20, 100}, repeats: 5, often: 20 * time.Second, seldom: 45 * time.Second, settle: 12 * time.Second, programs: map[string]string{}}
	if env.Quick {
		s = settings{counts: []int{2}, repeats: 1, often: 3 * time.Second, seldom: 16 * time.Second, settle: time.Second, programs: map[string]string{}}
	}
	if s.repeats, err = env.Number("repeats", 1, s.repeats); err != nil {
		return s, err
	}
	for name, to := range map[string]*time.Duration{"often": &s.often, "seldom": &s.seldom, "settle": &s.settle} {
		if *to, err = env.Duration(name, *to); err != nil {
			return s, err
		}
	}
	if text := env.Args["counts"]; text != "" {
		s.counts = nil
		for field := range strings.SplitSeq(text, ",") {
			n, err := strconv.Atoi(field)
			if err != nil || n < 1 {
				return s, fmt.Errorf("--set counts=%s: want numbers of containers, as 20,100", text)
			}
			s.counts = append(s.counts, n)
		}
		slices.Sort(s.counts)
	}
	return s, s.findPrograms(env)
}

// findPrograms takes the programs that are given by path.
func (s settings) findPrograms(env bench.Env) error {
	for name, ways := range map[string][]string{cadvisor: {cadvisor, cadvisorLeast}, nvidiaSMI: {nvidiaSMI, nvidiaNVML}} {
		path, err := env.Peer(name)
		if err != nil {
			return err
		}
		if path == "" {
			continue
		}
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("--set %s: %w", name, err)
		}
		for _, way := range ways {
			s.programs[way] = path
		}
	}
	return nil
}

// measurement is what all repeats use.
type measurement struct {
	*rig.Rig
	env     bench.Env
	how     settings
	tenants []*tenant.Tenant
	without map[string]string // ways that cannot be measured here, and why
}

func run(ctx context.Context, env bench.Env) (rows []bench.Row, err error) {
	how, err := parse(env)
	if err != nil {
		return nil, err
	}
	r, err := rig.Open(ctx, env, "peers", 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	m := &measurement{Rig: r, env: env, how: how, without: map[string]string{}}
	for _, way := range allWays {
		if way != laxity && how.programs[way] == "" {
			m.leaveOut(way, "its program is not given")
		}
	}
	if r.GPU.Simulated() && m.without[nvidiaNVML] == "" {
		m.leaveOut(nvidiaNVML, "the simulated GPU has no NVML")
	}
	for _, count := range how.counts {
		if err := m.add(ctx, count); err != nil {
			return rows, err
		}
		for i := range how.repeats {
			found, err := m.repeat(ctx, i+1)
			if err != nil {
				return rows, err
			}
			rows = append(rows, found...)
		}
	}
	return rows, nil
}

func (m *measurement) leaveOut(way, why string) {
	m.without[way] = why
	m.env.Log("%s is left out: %s", way, why)
}

// add starts containers until there are so many.
func (m *measurement) add(ctx context.Context, count int) error {
	for i := len(m.tenants); i < count; i++ {
		args := []string{"--n", strconv.Itoa(m.GPU.N(5120)), "--kernels", "1", "--repeat", "0"}
		if i >= busy {
			args = []string{"--context-only", "--hold", "36000"}
		}
		t, err := m.Tenants.Start(ctx, tenant.Spec{
			Name: fmt.Sprintf("laxity-bench-peers-%d-%d", os.Getpid(), i), Args: args,
			Labels: map[string]string{task.LabelDeadline: "1h"},
		})
		if err != nil {
			return err
		}
		m.tenants = append(m.tenants, t)
	}
	return nil
}

// repeat measures all ways once.
func (m *measurement) repeat(ctx context.Context, number int) (rows []bench.Row, err error) {
	all, err := m.containers(ctx)
	if err != nil {
		return nil, err
	}
	if err := m.standIn(all); err != nil {
		return nil, err
	}
	for _, way := range bench.Turned(allWays, number) {
		if m.without[way] != "" {
			continue
		}
		found, err := m.measure(ctx, way, all)
		if err != nil {
			return nil, fmt.Errorf("way %s: %w", way, err)
		}
		for _, r := range found {
			r["way"], r["repeat"], r["containers"] = way, number, len(all)
			m.env.Log("%d containers, repeat %d, %s every %.0f s: %.2f CPU seconds a minute, %.0f MiB, %.0f bytes, %.0f series", len(all), number, way,
				r.Num("every_s"), r.Num("cpu_s_per_min"), r.Num("rss_mib"), r.Num("bytes"), r.Num("series"))
		}
		rows = append(rows, found...)
	}
	return rows, nil
}

// containers tells who the tenants are, for what names them.
func (m *measurement) containers(ctx context.Context) (all []known, err error) {
	for _, t := range m.tenants {
		pid, err := t.PID(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, known{t.Name, t.ID, pid})
	}
	return all, nil
}

// smi is where the stand-in for nvidia-smi is.
func (m *measurement) smi() string { return filepath.Join(m.Dir, "smi", "nvidia-smi") }
