package cnns

import (
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/enforce/memory"
	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/exporter/device/sim/simtest"
	"github.com/laxity/laxity/internal/cudaprobe"
	"github.com/laxity/laxity/internal/needtest"
)

// Real containers on a simulated GPU, and a real `laxity up`: by default the second training fails, with Laxity the first
// one is swapped out for it, and both end.
func TestTrainingsOnASimulatedGPU(t *testing.T) {
	if testing.Short() {
		t.Skip("runs containers for some 50 s")
	}
	simtest.Docker(t)
	simtest.Library(t)
	if err := memory.Check(); errors.Is(err, cudaprobe.ErrUnsupported) {
		needtest.BPF.Skip(t, err)
	}
	bin := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(bin, "laxity"), "../../cmd/laxity").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	t.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	rows, err := run(t.Context(), bench.Env{Device: "sim", SimulatedMemory: 10 << 30, Log: t.Logf, Quick: true, Args: map[string]string{
		"memory": "2048", "length": "10s", "after": "2s", // one that soon ends is waited for, not swapped out
	}})
	if err != nil {
		t.Fatal(err)
	}
	for way, want := range map[string]int{one: 2, without: 1, laxity: 2} {
		all := summaries(rows, way)
		if len(all) != 1 || all[0].right != want || all[0].ended != want || all[0].trainings != 2 {
			t.Errorf("%s: %+v, want %d right", way, all, want)
		}
	}
	if s := summaries(rows, laxity)[0]; s.swaps == 0 {
		t.Errorf("nobody was swapped out: %+v", s)
	}
	if n := len(Experiment().FiguresOf(rows)); n != 4 {
		t.Errorf("%d figures", n)
	}
}

func TestOutcomeOf(t *testing.T) {
	for text, want := range map[string]string{
		"": ended, "torch.OutOfMemoryError: CUDA out of memory": outOfMemory, "CUDA_ERROR_OUT_OF_MEMORY (2)": outOfMemory, "code 1": failed,
	} {
		var err error
		if text != "" {
			err = errors.New(text)
		}
		if got := outcomeOf(err, false); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	if got := outcomeOf(errors.New("context deadline exceeded"), true); got != stuck {
		t.Errorf("too late: %s", got)
	}
}

func TestChecksumIn(t *testing.T) {
	for text, want := range map[string]string{
		"{}\n{\"began\": 1, \"ended\": 2}\n{\"checksum\": \"ab\"}\n": "ab", "{\"event\":\"exit\"}\n": "", "{\"checksum": "",
	} {
		if got := checksumIn(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// A training is right only with the steps and the bits of its lone run.
func TestRight(t *testing.T) {
	alone := &training{result: result{3, "ab"}}
	for name, c := range map[string]struct {
		training
		want bool
	}{
		"the same":    {training{outcome: ended, result: result{3, "ab"}}, true},
		"other bits":  {training{outcome: ended, result: result{3, "cd"}}, false},
		"fewer steps": {training{outcome: ended, result: result{2, "ab"}}, false},
		"failed":      {training{outcome: failed, result: result{3, "ab"}}, false},
	} {
		if got := c.right(alone); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestSettings(t *testing.T) {
	for _, bad := range []map[string]string{{"trainings": "0"}, {"late": "5"}, {"late": "-1"}, {"fit": "half"}, {"memory": "1"}, {"length": "16"}} {
		if _, err := parse(bench.Env{Args: bad}); err == nil {
			t.Errorf("%v was taken", bad)
		}
	}
	if s, err := parse(bench.Env{Args: map[string]string{"late": "0"}}); err != nil || s.late != 0 || s.trainings != 4 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestFigures(t *testing.T) {
	row := func(way string, run int, right bool, end float64, outcome string) bench.Row {
		return bench.Row{"way": way, "run": run, "right": right, "end": end, "took": end / 2, "outcome": outcome, "swapped_out": 1, "hit": 1.0}
	}
	rows := []bench.Row{
		row(one, 1, true, 40, ended), row(without, 1, true, 20, ended), row(without, 1, false, 1, outOfMemory),
		row(laxity, 1, true, 50, ended), row(laxity, 1, false, 44, ended), row(laxity, 2, true, 70, ended),
	}
	want := map[string]bench.Figure{
		"cnns_right": {Value: 2, Ratio: 2}, "cnns_wrong": {Value: 1}, "cnns_swapped_out": {Value: 3}, "cnns_makespan_s": {Value: 60, Ratio: 1.5},
	}
	found := Experiment().FiguresOf(rows)
	for _, f := range found {
		if w := want[f.Name]; math.Abs(f.Value-w.Value) > 1e-9 || math.Abs(f.Ratio-w.Ratio) > 1e-9 || f.Runs != 2 {
			t.Errorf("%+v, want %+v", f, w)
		}
	}
	if len(found) != len(want) || len(table(rows)) != 4 {
		t.Errorf("%d figures, table %q", len(found), table(rows))
	}
	if text := said(rows[3:5]); !strings.HasPrefix(text, "laxity: 2 of 2 ended, 1 right, 2 swapped out, 2 of 2 in time") {
		t.Error(text)
	}
}

func TestSwapsOf(t *testing.T) {
	got := swapsOf([]decision.Decision{
		{Kind: decision.SwapOut, Result: decision.Done, Container: "a"}, {Kind: decision.SwapIn, Result: decision.Done, Container: "a"},
		{Kind: decision.SwapOut, Result: decision.Failed, Container: "b"}, {Kind: decision.SwapOut, Result: decision.Done, Container: "a"},
	})
	if len(got) != 1 || got["a"] != 2 {
		t.Errorf("%v", got)
	}
}
