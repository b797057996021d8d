package chain

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/exporter/device/sim/simtest"
	"github.com/laxity/laxity/internal/needtest"
)

func TestSomeoneOrdered(t *testing.T) {
	for name, tt := range map[string]struct {
		container state.Container
		want      bool
	}{
		"nothing":        {state.Container{Name: "a", Tasks: 1, Order: "alone on the GPU"}, false},
		"a slice":        {state.Container{Name: "a", SliceSeconds: 0.002}, true},
		"channels off":   {state.Container{Name: "a", Off: true}, true},
		"paused, queued": {state.Container{Name: "a", Waits: "b comes first"}, true},
	} {
		if got := someoneOrdered(state.State{Containers: []state.Container{{Name: "other"}, tt.container}}); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestShippedFigures(t *testing.T) {
	rows := []bench.Row{
		{"way": "alone", "took_s": 1.0, "hit": true},
		{"way": byDefault, "took_s": 2.0, "hit": false},
		{"way": byDefault, "took_s": 2.2, "hit": true},
		{"way": asShipped, "took_s": 1.0, "hit": true, "alert_s": 0.2, "order_s": 0.3, "let_go_s": 0.1},
		{"way": asShipped, "took_s": 1.1, "hit": true}, // it ended before anything was ordered
	}
	got := map[string]bench.Figure{}
	for _, f := range Shipped().FiguresOf(rows) {
		got[f.Name] = f
	}
	if f := got["shipped_order_median_ms"]; f.Value != 300 || f.Runs != 1 {
		t.Errorf("order: %+v", f)
	}
	if f := got["shipped_task_median_s"]; f.Value != 1.05 || f.Ratio != 0.5 || f.Runs != 2 {
		t.Errorf("task: %+v", f)
	}
	if f := got["shipped_in_time"]; f.Value != 2 || f.Runs != 2 {
		t.Errorf("in time: %+v", f)
	}
	if f, ok := got["pauses_task_median_s"]; ok {
		t.Errorf("a way without rows has %+v", f)
	}
	lines := shippedTable(rows)
	if len(lines) != 4 || lines[2][7] != "1 of 2" || lines[3][3] != "300" {
		t.Errorf("%q", lines)
	}
}

// The whole chain, with a stock Prometheus and Alertmanager, on a simulated GPU: every task with a deadline is
// ordered, and nobody is afterwards.
func TestShipped(t *testing.T) {
	if testing.Short() {
		t.Skip("runs containers and a monitoring stack for some 40 s")
	}
	simtest.Docker(t)
	simtest.Library(t)
	for _, program := range []string{"prometheus", "prometheus-alertmanager"} {
		if _, err := exec.LookPath(program); err != nil {
			needtest.Prometheus.Skipf(t, "%s is not installed (Debian and Ubuntu: apt-get install prometheus prometheus-alertmanager)", program)
		}
	}
	built, err := filepath.Abs("../../bin")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", built+string(os.PathListSeparator)+os.Getenv("PATH"))
	rows, err := Shipped().Run(t.Context(), bench.Env{Device: "sim", Log: t.Logf, Seed: 1, Args: map[string]string{"samples": "1", "kernels": "80"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, way := range []string{asShipped, byPauses} {
		order, let := bench.Column(rows, "order_s", bench.Way(way)), bench.Column(rows, "let_go_s", bench.Way(way))
		if len(order) != 1 || !(order[0] > 0) || !(let[0] < 30) {
			t.Errorf("%s: ordered after %v s, let go after %v s", way, order, let)
		}
	}
}
