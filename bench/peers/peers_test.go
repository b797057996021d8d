package peers

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/rig"
)

const id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

var two = []known{{"first", id, 41}, {"second", strings.Replace(id, "0", "f", 1), 42}}

// What each kind of exporter says is counted by the same rule.
func TestTell(t *testing.T) {
	for _, c := range []struct {
		name, page string
		want       map[string]float64
	}{
		{
			"by name", "# TYPE gpu_container_memory_used_bytes gauge\ngpu_container_memory_used_bytes{container=\"first\"} 1\ngpu_tasks{container=\"first\"} 1\ngpu_task_deadline_timestamp_seconds{container=\"second\"} 1\n",
			map[string]float64{"named": 2, "gpu_memory": 1, "gpu_tasks": 2, "deadline": 1, "pids": 0, "series": 3},
		},
		{
			"by id", "container_memory_rss{id=\"/docker/" + id + "\",name=\"first\"} 1\ncontainer_memory_rss{id=\"/\"} 1\n",
			map[string]float64{"named": 1, "gpu_memory": 0, "gpu_tasks": 0, "deadline": 0, "pids": 0, "series": 2},
		},
		{
			"by PID", "smi_gpu_memory_bytes{pid=\"42\"} 1\nsmi_gpu_memory_bytes{pid=\"7\"} 1\n",
			map[string]float64{"named": 0, "gpu_memory": 0, "gpu_tasks": 0, "deadline": 0, "pids": 1, "series": 2},
		},
		{"a histogram", "# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 1\n", map[string]float64{"series": 4, "named": 0}},
	} {
		row := bench.Row{}
		if err := tell([]byte(c.page), two, row); err != nil {
			t.Fatal(c.name, err)
		}
		for key, want := range c.want {
			if row.Num(key) != want {
				t.Errorf("%s: %s = %v, want %v", c.name, key, row.Num(key), want)
			}
		}
	}
	if err := tell([]byte("no metrics here\n{"), two, bench.Row{}); err == nil {
		t.Error("nonsense is read")
	}
}

func TestParse(t *testing.T) {
	s, err := parse(bench.Env{Args: map[string]string{"cadvisor": "/bin/sh", "cadvisor-build": "abc, unchanged", "counts": "100,20"}})
	if err != nil || s.programs[cadvisor] != "/bin/sh" || s.programs[cadvisorLeast] != "/bin/sh" || s.programs[nvidiaSMI] != "" || !slices.Equal(s.counts, []int{20, 100}) {
		t.Errorf("%+v, %v", s, err)
	}
	for _, bad := range []map[string]string{
		{"cadvisor": "/bin/sh"}, {"cadvisor": "/nowhere", "cadvisor-build": "abc"}, {"counts": "0"}, {"repeats": "0"}, {"often": "1"},
	} {
		if _, err := parse(bench.Env{Args: bad}); err == nil {
			t.Errorf("%v was taken", bad)
		}
	}
}

// The stand-in answers what is asked of nvidia-smi: a value for each field, with units in the heading.
func TestStandIn(t *testing.T) {
	m := &measurement{Rig: &rig.Rig{Dir: t.TempDir(), GPU: &bench.GPU{Socket: "simulated"}}}
	if err := m.standIn(two); err != nil {
		t.Fatal(err)
	}
	ask := func(args ...string) []string {
		out, err := exec.CommandContext(t.Context(), m.smi(), args...).Output()
		if err != nil {
			t.Fatal(args, err)
		}
		return strings.Split(strings.TrimSpace(string(out)), "\n")
	}
	lines := ask("--query-gpu=uuid,memory.total,power.draw,no.such", "--format=csv")
	if len(lines) != 2 || lines[0] != "uuid, memory.total [MiB], power.draw [W], no.such" || !strings.HasSuffix(lines[1], ", 143771 MiB, 412.50 W, [N/A]") {
		t.Errorf("%q", lines)
	}
	if apps := ask("--query-compute-apps=gpu_uuid,pid,process_name,used_gpu_memory", "--format=csv"); len(apps) != 3 || !strings.Contains(apps[2], " 42,") {
		t.Errorf("%q", apps)
	}
	if help := strings.Join(ask("--help-query-gpu"), "\n"); strings.Count(help, `"`) < 40 {
		t.Errorf("%s", help)
	}
}

func TestFiguresCompareScrapesOnceASecond(t *testing.T) {
	var rows []bench.Row
	add := func(way string, every, cpu float64) {
		for i := range 3 {
			rows = append(rows, bench.Row{"way": way, "containers": 20, "every_s": every, "repeat": i + 1, "cpu_s_per_min": cpu + float64(i),
				"rss_mib": 10.0, "scrape_s": 0.01, "bytes": 9, "series": 3, "named": 20, "gpu_memory": 0, "gpu_tasks": 0, "deadline": 0, "pids": 0})
		}
	}
	add(laxity, 1, 1)
	add(laxity, 15, 100)
	add(cadvisor, 1, 3)
	figures := Experiment().FiguresOf(rows)
	if len(figures) != 2 || figures[0].Name != "peers20_cpu_vs_cadvisor" || figures[0].Value != 2 || figures[0].Ratio != 0.5 || figures[0].Runs != 3 {
		t.Errorf("%+v", figures)
	}
	if lines := table(rows); len(lines) != 1+3 || lines[1][3] != "2 (1.500–2.500)" || lines[1][8] != "20 of 20" {
		t.Errorf("%s", fmt.Sprint(lines))
	}
}
