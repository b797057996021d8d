package hidden

import (
	"reflect"
	"testing"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/exporter/device/sim/simtest"
	"github.com/laxity/laxity/internal/workload"
)

// Real containers on simulated GPUs: each sees those that it was given.
func TestContainersOnSimulatedGPUs(t *testing.T) {
	if testing.Short() {
		t.Skip("runs containers for some 5 s")
	}
	simtest.Docker(t)
	simtest.Library(t)
	rows, err := run(t.Context(), bench.Env{Device: "sim", Log: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	if n, all := Hidden(rows); n != 5 || all != 5 {
		t.Errorf("%d of %d hide: %v", n, all, rows)
	}
	if rows[0].Num("cuda_own") != 3 || rows[0].Str("given") != "all" {
		t.Errorf("the control: %v", rows[0])
	}
}

func TestCases(t *testing.T) {
	for n, want := range map[int][][]int{
		1: {{0}, {}}, 2: {{0, 1}, {}, {0}, {1}}, 3: {{0, 1, 2}, {}, {0}, {1}, {2}, {0, 1}},
	} {
		if got := cases(n); !reflect.DeepEqual(got, want) {
			t.Errorf("%d GPUs: %v, want %v", n, got, want)
		}
	}
}

func TestRowOf(t *testing.T) {
	gpus := []device.GPU{{UUID: "GPU-a"}, {UUID: "GPU-b"}}
	for name, c := range map[string]struct {
		sight sight
		hides bool
	}{
		"its own":             {sight{cuda: []string{"GPU-b"}, nvml: []string{"GPU-b"}, files: []string{"1"}, made: []string{"1"}}, true},
		"without NVML":        {sight{cuda: []string{"GPU-b"}}, true},
		"not its own":         {sight{}, false},
		"another by CUDA":     {sight{cuda: []string{"GPU-a", "GPU-b"}}, false},
		"another by NVML":     {sight{cuda: []string{"GPU-b"}, nvml: []string{"GPU-a"}}, false},
		"another's file":      {sight{cuda: []string{"GPU-b"}, files: []string{"0", "1"}}, false},
		"another's file made": {sight{cuda: []string{"GPU-b"}, made: []string{"0"}}, false},
	} {
		row := rowOf(gpus, []int{1}, c.sight)
		if hides(row) != c.hides || row.Str("given") != "1" {
			t.Errorf("%s: %v", name, row)
		}
		n, all := Hidden([]bench.Row{row, rowOf(gpus, []int{0, 1}, sight{})}) // the control does not count
		if all != 1 || (n == 1) != c.hides {
			t.Errorf("%s: %d of %d", name, n, all)
		}
		if len(table([]bench.Row{row})) != 2 || Experiment().FiguresOf([]bench.Row{row})[0].Value != float64(n) {
			t.Errorf("%s: %v", name, table([]bench.Row{row}))
		}
	}
}

func TestSightOf(t *testing.T) {
	s, err := sightOf([]workload.Event{
		{Name: "start", Text: `{"gpu":""}`}, {Name: "cuda", Text: `{"gpu":"GPU-a"}`}, {Name: "file", Text: `{"gpu":"0"}`}, {Name: "file", Text: `{"gpu":"1"}`},
	})
	if want := (sight{cuda: []string{"GPU-a"}, files: []string{"0", "1"}}); err != nil || !reflect.DeepEqual(s, want) {
		t.Errorf("%+v, %v", s, err)
	}
}
