// Package hidden measures whether a container that is given some of a machine's GPUs sees the others (P5).
package hidden

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/rig"
	"github.com/laxity/laxity/bench/tenant"
	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/internal/cc"
	"github.com/laxity/laxity/internal/workload"
)

const about = `A container is given all GPUs, none, each one alone, and, where there are more than two, the first two. A program in it, root there, says which
GPUs CUDA and NVML list, which of the device files /dev/nvidiaN it can open, and which it can open after it has made the file itself. A GPU
that was not given is hidden if none of the four reaches it. GPUs are given by the engine's NVIDIA runtime if it has one, as ` + "`laxity run`" + ` asks
for the GPU that the placement has chosen (--gpus device=UUID); else by their device files, which is what that runtime does besides. Laxity takes part in no
other way: who may open a device file is up to the kernel. A container given all is the control. Simulated GPUs have no device files: there
the stand-in library reads NVIDIA_VISIBLE_DEVICES, and the program could ignore that.`

// Experiment is GPUs hidden from containers.
func Experiment() bench.Experiment {
	return bench.Experiment{
		Name: "hidden", Title: "GPUs that are not a container's, seen from inside (P5)", About: about, NeedsGPU: true,
		Settings: []bench.Setting{{Name: "sim-gpus", Means: "simulated: how many GPUs; 3"}},
		Run:      run, Figures: figures, Table: table,
	}
}

//go:embed src/seen.c
var source []byte

func run(ctx context.Context, env bench.Env) (rows []bench.Row, err error) {
	simulated, err := env.Number("sim-gpus", 1, 3)
	if err != nil {
		return nil, err
	}
	program, err := cc.Build(ctx, cc.CacheDir(), cc.Target{Name: "seen", Source: source, Flags: []string{"-ldl"}})
	if err != nil {
		return nil, err
	}
	r, err := rig.Open(ctx, env, "hidden", simulated)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	reading, err := r.Read(ctx)
	if err != nil {
		return nil, err
	}
	for i, given := range cases(len(reading.GPUs)) {
		seen, err := look(ctx, r, program, i, given, len(reading.GPUs))
		if err != nil {
			return rows, err
		}
		row := rowOf(reading.GPUs, given, seen)
		env.Log("given %s: CUDA lists %d, NVML %d; files %d, made %d", row["given"], len(seen.cuda), len(seen.nvml), len(seen.files), len(seen.made))
		rows = append(rows, row)
	}
	return rows, nil
}

// cases are which of n GPUs containers are given, by index. The first one is the control.
func cases(n int) (all [][]int) {
	every := make([]int, n)
	for i := range every {
		every[i] = i
	}
	all = [][]int{every, {}}
	for i := range n {
		if n > 1 {
			all = append(all, []int{i})
		}
	}
	if n > 2 {
		all = append(all, every[:2])
	}
	return all
}

// sight is what a program has reached: UUIDs, and minor numbers.
type sight struct{ cuda, nvml, files, made []string }

// look runs the program in a container with these GPUs of so many.
func look(ctx context.Context, r *rig.Rig, program string, i int, given []int, gpus int) (s sight, err error) {
	t, err := r.Tenants.Start(ctx, tenant.Spec{
		Name: fmt.Sprintf("laxity-bench-hidden-%d-%d", os.Getpid(), i), Program: program, Args: []string{strconv.Itoa(gpus)}, GPUs: given,
	})
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, t.Remove()) }()
	if err := t.Wait(ctx); err != nil {
		return s, err
	}
	events, err := t.Timeline(ctx)
	if err != nil {
		return s, err
	}
	return sightOf(events)
}

func sightOf(events []workload.Event) (s sight, err error) {
	for _, e := range events {
		var said struct{ GPU string }
		if err := json.Unmarshal([]byte(e.Text), &said); err != nil {
			return s, err
		}
		if to := map[string]*[]string{"cuda": &s.cuda, "nvml": &s.nvml, "file": &s.files, "made": &s.made}[e.Name]; to != nil {
			*to = append(*to, said.GPU)
		}
	}
	return s, nil
}

// rowOf compares what a container has reached with what it was given. The number of a device file is taken for the
// index of its GPU, which it is on all but odd machines.
func rowOf(all []device.GPU, given []int, s sight) bench.Row {
	var uuids, numbers []string
	for _, i := range given {
		uuids, numbers = append(uuids, all[i].UUID), append(numbers, strconv.Itoa(i))
	}
	return bench.Row{
		"given": name(given, len(all)), "gpus": len(all), "own": len(given), "control": len(given) == len(all),
		"cuda_own": common(s.cuda, uuids), "cuda_others": len(s.cuda) - common(s.cuda, uuids),
		"nvml_own": common(s.nvml, uuids), "nvml_others": len(s.nvml) - common(s.nvml, uuids),
		"files_others": len(s.files) - common(s.files, numbers), "made_others": len(s.made) - common(s.made, numbers),
	}
}

// name is that of what a container was given.
func name(given []int, gpus int) string {
	switch {
	case len(given) == gpus:
		return "all"
	case len(given) == 0:
		return "none"
	}
	text := ""
	for _, i := range given {
		text += fmt.Sprintf("+%d", i)
	}
	return text[1:]
}

// common counts the values that both have.
func common(a, b []string) (n int) {
	for _, v := range a {
		if slices.Contains(b, v) {
			n++
		}
	}
	return n
}
