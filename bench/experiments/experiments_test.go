package experiments_test

import (
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/experiments"
	"github.com/laxity/laxity/bench/papers/page"
)

// Every stored figure follows from the stored rows.
func TestFiguresFollowFromRows(t *testing.T) {
	stored, err := experiments.Stored(os.DirFS("../results"))
	if err != nil {
		t.Fatal(err)
	}
	if len(stored) == 0 {
		t.Fatal("no stored results in bench/results")
	}
	for name, r := range stored {
		t.Run(name, func(t *testing.T) {
			e, ok := experiments.Find(r.Name)
			if !ok {
				t.Fatalf("no experiment %q", r.Name)
			}
			if len(r.Rows) == 0 || r.Machine == "" || r.Date.IsZero() || r.Commit == "" {
				t.Errorf("rows, machine, date or commit are missing")
			}
			for i, row := range r.Rows {
				if r.Settings == nil { // from before each row had them
					break
				}
				if row.Str("commit") != r.Commit || !(row.Num("run") >= 1) || !(row.Num("time") > 0) {
					t.Errorf("row %d is of commit %q, run %v, time %v", i, row.Str("commit"), row["run"], row["time"])
				}
			}
			again := e.FiguresOf(r.Rows)
			if len(again) != len(r.Figures) {
				t.Fatalf("%d figures are stored, %d follow from the rows", len(r.Figures), len(again))
			}
			for i, f := range again {
				if !same(f, r.Figures[i]) {
					t.Errorf("stored %+v, from the rows %+v", r.Figures[i], f)
				}
			}
		})
	}
}

func same(a, b bench.Figure) bool {
	return a.Name == b.Name && a.Unit == b.Unit && a.Against == b.Against && a.Runs == b.Runs && near(a.Value, b.Value) && near(a.Ratio, b.Ratio)
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Max(math.Abs(a), math.Abs(b)) }

// bench/README.md is what `make bench-report` writes.
func TestReportIsCurrent(t *testing.T) {
	stored, err := experiments.Stored(os.DirFS("../results"))
	if err != nil {
		t.Fatal(err)
	}
	worse, err := experiments.Worse(os.DirFS("../results"))
	if err != nil || len(worse) == 0 {
		t.Fatalf("worse.txt: %q, %v", worse, err)
	}
	var want strings.Builder
	if err := bench.Report(&want, experiments.All(), stored, worse); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want.String() {
		t.Error("bench/README.md is not what the stored results say: run make bench-report")
	}
	drawn, err := bench.Drawings(experiments.All(), stored)
	if err != nil || len(drawn) < 5 {
		t.Fatalf("%d charts, %v", len(drawn), err)
	}
	files, err := filepath.Glob("../charts/*.svg")
	if err != nil || len(files) != len(drawn) {
		t.Errorf("%d charts are stored, %d follow from the results (%v): run make bench-report", len(files), len(drawn), err)
	}
	for name, want := range drawn {
		if got, err := os.ReadFile(filepath.Join("..", name)); err != nil || string(got) != want {
			t.Errorf("bench/%s is not what the stored results say (%v): run make bench-report", name, err)
		}
	}
}

// bench/papers.md is what `make bench-report` writes.
func TestPapersPageIsCurrent(t *testing.T) {
	stored, err := experiments.Stored(os.DirFS("../results"))
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	if err := page.Write(&want, stored); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile("../papers.md"); err != nil || string(got) != want.String() {
		t.Errorf("bench/papers.md is not what the stored results say (%v): run make bench-report", err)
	}
}

// An experiment without rows must not invent figures or crash.
func TestFiguresOfNothing(t *testing.T) {
	for _, e := range experiments.All() {
		for _, f := range e.FiguresOf(nil) {
			if !math.IsNaN(f.Value) && f.Value != 0 {
				t.Errorf("%s: %s = %v without a single row", e.Name, f.Name, f.Value)
			}
		}
		_ = e.Table(nil)
		if e.Charts != nil {
			for _, c := range e.Charts(nil) {
				if err := c.WriteSVG(io.Discard); err != nil {
					t.Errorf("%s: %v", e.Name, err)
				}
			}
		}
		if e.About == "" || e.Title == "" {
			t.Errorf("%s says not what it measures", e.Name)
		}
	}
}
