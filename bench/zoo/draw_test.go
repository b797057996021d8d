package zoo

import (
	"context"
	"errors"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/laxity/laxity/bench"
	gpu "github.com/laxity/laxity/exporter/task"
)

func everything() pool { return pool{kinds: kinds, engine: true} }

// facts leaves out what is a function.
func facts(r round) (all []any) {
	for _, d := range r.containers {
		all = append(all, d.kind.name, d.args, d.labels, d.user, d.after)
	}
	return append(all, r.standard, r.services, r.flags, r.deaths)
}

func TestSeedRepeatsARound(t *testing.T) {
	for seed := range uint64(50) {
		if a, b := everything().draw(seed), everything().draw(seed); !reflect.DeepEqual(facts(a), facts(b)) {
			t.Fatalf("seed %d draws %+v and %+v", seed, a, b)
		}
	}
}

func TestDrawHasEverything(t *testing.T) {
	seen := map[string]int{}
	containers, standard := 0, 0
	for seed := range uint64(600) {
		r := everything().draw(seed)
		if n := len(r.containers); n < 4 || n > 10 {
			t.Fatalf("seed %d: %d containers", seed, n)
		}
		containers += len(r.containers)
		if r.standard {
			standard += len(r.containers)
		}
		for _, d := range r.containers {
			seen[d.kind.name]++
			if len(d.labels) == 0 {
				seen["unlabelled"]++
			}
			seen[d.labels[gpu.LabelDeadline]]++
		}
		for _, d := range r.deaths {
			seen[d.who]++
			if d.whom >= len(r.containers) {
				t.Errorf("seed %d: %v of %d containers", seed, d, len(r.containers))
			}
		}
		for _, f := range r.flags {
			seen[f]++
		}
	}
	if standard*3 < containers {
		t.Errorf("%d of %d containers are under default flags; want a third", standard, containers)
	}
	want := []string{"unlabelled", "soon", "300ms", tenantKilled, tenantStopped, exporterDies, actuatorDies, guardianDies, bothDie, laxityEnds, engineDies, engineStops,
		"--policy=p3", "--arbitrate=never", "--memory-guard=off", "--swap=off", "--hold=pause", "--hold=channels"}
	for _, k := range kinds {
		want = append(want, k.name)
	}
	for _, what := range want {
		if seen[what] < 10 {
			t.Errorf("%q is drawn %d times in 600 rounds", what, seen[what])
		}
	}
}

// Where Laxity does not start, it failed all containers of the round: that is no round left out.
func TestLaxityThatDoesNotStartFails(t *testing.T) {
	r := round{seed: 7, standard: true, containers: make([]drawn, 3), deaths: []death{{who: guardianDies}}}
	for i := range r.containers {
		r.containers[i].kind = kind{name: "k"}
	}
	rows := []bench.Row{notStartedRow(r, errors.New("not ready in 1m"))}
	got := map[string]float64{}
	for _, f := range figures(rows) {
		got[f.Name] = f.Value
	}
	if got["zoo_failed"] != 3 || got["zoo_containers"] != 3 || got["zoo_stuck"] != 0 {
		t.Errorf("%v", got)
	}
	if lines := table(rows); len(lines) != 2 || lines[1][0] != "laxity up, default flags, somebody dies" || lines[1][4] != "3" {
		t.Errorf("%v", lines)
	}
}

// The third such round, with which it gives up, counts too; one that was interrupted does not.
func TestEachRoundWithoutLaxityCounts(t *testing.T) {
	for name, tt := range map[string]struct{ interrupted, want int }{"it gives up": {-1, 3}, "interrupted": {1, 1}} {
		ctx, cancel := context.WithCancel(t.Context())
		rows, err := playRounds(ctx, bench.Env{Log: t.Logf}, plan{rounds: 9}, time.Now(), everything(), func(i int, _ round) (bench.Row, error) {
			if i == tt.interrupted {
				cancel()
			}
			return nil, &notStartedError{errors.New("not ready in 1m")}
		})
		cancel()
		containers, _ := sum(rows, "containers", nil)
		if failed, n := sum(rows, "failed", nil); err == nil || n != tt.want || failed != containers {
			t.Errorf("%s: %v; in %d rounds %v of %v containers failed", name, err, n, failed, containers)
		}
	}
}

// Labels that are drawn never ask for less memory than the kind needs.
func TestLimitsAreRoomyEnough(t *testing.T) {
	for seed := range uint64(300) {
		for _, d := range everything().draw(seed).containers {
			limit, err := gpu.ParseBytes(d.labels[gpu.LabelGPUMemory])
			if err == nil && limit < uint64(d.kind.memory)<<30 {
				t.Errorf("%s may hold %s", d.kind.name, d.labels[gpu.LabelGPUMemory])
			}
		}
	}
}

func TestJudge(t *testing.T) {
	plain := kind{name: "plain"}
	crash := kind{name: "crash", code: 139, silent: true}
	right, odd := end{result: "right 8"}, end{code: 1}
	for _, tt := range []struct {
		name    string
		k       kind
		ours    end
		theirs  end
		doomed  bool
		without bool
		want    string
	}{
		{"right", plain, right, right, false, true, ""},
		{"another status", plain, end{code: 1, result: "right 8"}, right, false, true, "failed"},
		{"another result", plain, end{result: "wrong: 3 of 8"}, right, false, true, "wrong"},
		{"no result", plain, end{}, right, false, false, "wrong"},
		{"as without", plain, odd, odd, false, true, ""},
		{"killed by the round", plain, odd, right, true, true, ""},
		{"meant to crash", crash, end{code: 139}, end{code: 139}, false, true, ""},
		{"did not crash", crash, end{}, end{code: 139}, false, true, "failed"},
		{"its status was lost with the engine", plain, end{code: 255, result: "right 8", deaf: true}, right, false, true, ""},
		{"is stuck", plain, end{late: true}, right, false, true, ""},
	} {
		if got := judge(drawn{kind: tt.k}, tt.ours, tt.doomed, tt.without, outcome{ends: []end{tt.theirs}}, 0); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestRowCountsAContainerOnce(t *testing.T) {
	r := everything().draw(3)
	r.deaths = nil
	var ours outcome
	for range r.containers {
		ours.ends = append(ours.ends, end{late: true})
		ours.said = append(ours.said, "")
	}
	for i := range r.containers {
		ours.troubles = append(ours.troubles, trouble{container: i, what: "stands"}, trouble{container: i, what: "has not ended"})
	}
	ours.left, ours.counts.strays = []string{"a pin"}, 2
	rows := []bench.Row{rowOf(r, ours, outcome{}, false)}
	for _, f := range figures(rows) {
		want := map[string]float64{"zoo_containers": float64(len(r.containers)), "zoo_stuck": float64(len(r.containers)), "zoo_stray": 3}
		if v, ok := want[f.Name]; ok && v != f.Value {
			t.Errorf("%s is %v, want %v", f.Name, f.Value, v)
		}
	}
	if len(table(rows)) != 2 {
		t.Errorf("table %v", table(rows))
	}
	// What is stored gives the same figures.
	stored := bench.Result{Name: "zoo", Rows: rows}
	dir := t.TempDir()
	if _, err := stored.Write(dir); err != nil {
		t.Fatal(err)
	}
	again, err := bench.ReadResult(os.DirFS(dir), "zoo.json")
	if err != nil || !reflect.DeepEqual(Experiment().FiguresOf(again.Rows), Experiment().FiguresOf(rows)) || !reflect.DeepEqual(table(again.Rows), table(rows)) {
		t.Errorf("%v: stored rows give %v and %v", err, Experiment().FiguresOf(again.Rows), table(again.Rows))
	}
}
