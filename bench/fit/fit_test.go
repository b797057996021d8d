package fit

import (
	"errors"
	"testing"

	"github.com/laxity/laxity/actuator/actuatortest"
	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/rig"
	"github.com/laxity/laxity/exporter/device/sim/simtest"
	"github.com/laxity/laxity/internal/needtest"
	"github.com/laxity/laxity/internal/workload"
)

func TestMain(m *testing.M) { actuatortest.Main(m, nil) }

// Real containers on a simulated GPU: by default the first one takes all, with Laxity several fit.
func TestContainersOnASimulatedGPU(t *testing.T) {
	if testing.Short() {
		t.Skip("runs containers for some 15 s")
	}
	simtest.Docker(t)
	simtest.Library(t)
	rows, err := run(t.Context(), bench.Env{Device: "sim", Log: t.Logf, Quick: true, Args: map[string]string{"card": "3072", "quiet": "6s"}})
	if errors.Is(err, rig.ErrNotGuarded) {
		needtest.BPF.Skip(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	ours, before := countedIn(rows, laxity), countedIn(rows, without)
	if len(ours) != 1 || len(before) != 1 || before[0].fits != 1 || ours[0].fits < 2 {
		t.Errorf("laxity %+v, default %+v", ours, before)
	}
	for _, r := range rows {
		if limit := 1024/128 - 1; r.Str("way") == laxity && r.Num("steps") > float64(limit) {
			t.Errorf("more than the limit: %v", r)
		}
	}
}

func TestReadEvents(t *testing.T) {
	for name, c := range map[string]struct {
		events  []string
		steps   int
		outcome string
	}{
		"nothing yet":   {nil, 0, waits},
		"a context":     {[]string{"context"}, 0, waits},
		"steps":         {[]string{"context", "step", "step"}, 2, waits},
		"its end":       {[]string{"context", "step", "refused"}, 1, refused},
		"no step":       {[]string{"context", "refused"}, 0, refused},
		"not a context": {[]string{"refused"}, 0, noContext},
	} {
		var events []workload.Event
		for _, name := range c.events {
			events = append(events, workload.Event{Name: name})
		}
		if steps, outcome := readEvents(events); steps != c.steps || outcome != c.outcome {
			t.Errorf("%s: %d, %s", name, steps, outcome)
		}
	}
}

func TestFigures(t *testing.T) {
	row := func(way string, run, steps, later int, outcome string) bench.Row {
		r := bench.Row{"way": way, "run": run, "steps": steps, "outcome": outcome, "free": 5.0 * (1 << 30)}
		if !fits(steps, outcome) {
			r["later"] = later
		}
		return r
	}
	rows := []bench.Row{
		row(without, 1, 36, 0, refused), row(without, 1, 0, 0, noContext),
		row(laxity, 1, 3, 0, refused), row(laxity, 1, 3, 0, refused), row(laxity, 1, 1, 2, waits),
		row(laxity, 2, 3, 0, refused), row(laxity, 2, 3, 0, refused), row(laxity, 2, 0, 0, waits),
	}
	want := map[string]bench.Figure{"fit_containers": {Value: 2, Ratio: 2}, "fit_later": {Value: 1}}
	for _, f := range Experiment().FiguresOf(rows) {
		if w := want[f.Name]; f.Value != w.Value || f.Ratio != w.Ratio || f.Runs != 2 {
			t.Errorf("%+v, want %+v", f, w)
		}
	}
	if lines := table(rows); len(lines) != 4 || lines[1][6] != "gets its steps" || lines[2][6] != "gets nothing" {
		t.Errorf("%q", lines)
	}
}

func TestSettings(t *testing.T) {
	for _, bad := range []map[string]string{{"runs": "0"}, {"card": "5GiB"}, {"every": "0s"}, {"containers": "none"}} {
		if _, err := parse(bench.Env{Args: bad}); err == nil {
			t.Errorf("%v was taken", bad)
		}
	}
}
