// Package bench holds the experiments behind every figure that Laxity claims.
//
// An Experiment measures Laxity and its alternatives in the same run and keeps
// what it measured as raw rows; its figures are computed from the rows by a pure
// function, so that a test can compute them again from what is stored. Run one
// with `laxity-bench NAME`.
package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/laxity/laxity/bench/chart"
	"github.com/laxity/laxity/internal/replace"
)

// Experiment is one table or figure.
type Experiment struct {
	// Name is the word after `laxity-bench`, Title what the table shows.
	Name, Title string
	// About says in a few lines what is measured, how, and against what.
	About string
	// Settings are what --set may say to it.
	Settings []Setting
	// Portions: it can go on from an earlier result, and numbers its runs from Env.FirstRun.
	Portions bool
	// NeedsGPU: without a real GPU its figures mean nothing.
	NeedsGPU bool
	// Run measures. It returns the rows that it has even when it fails, of whole runs alone:
	// of all ways, where ways are compared.
	Run func(ctx context.Context, env Env) ([]Row, error)
	// Figures computes the figures from the rows. Pure.
	Figures func(rows []Row) []Figure
	// Table lays the rows out for a reader: a heading line, then one line each.
	Table func(rows []Row) [][]string
	// Charts draws the rows; nil where a table says it all. Pure.
	Charts func(rows []Row) []chart.Chart
}

// FiguresOf computes the figures and leaves out those that the rows do not give.
func (e Experiment) FiguresOf(rows []Row) []Figure {
	known := slices.DeleteFunc(e.Figures(rows), func(f Figure) bool { return math.IsNaN(f.Value) })
	for i, f := range known {
		if math.IsNaN(f.Ratio) || math.IsInf(f.Ratio, 0) {
			known[i].Ratio, known[i].Against = 0, ""
		}
	}
	return known
}

// ErrPrinted is what a run returns that printed what it was asked for and has nothing to
// store.
var ErrPrinted = errors.New("printed, nothing to store")

// Env is what an experiment may use.
type Env struct {
	// Log takes progress, a line each.
	Log func(format string, args ...any)
	// Print takes what a person asked to see, where that is no table of rows.
	Print func(format string, args ...any)
	// Seed makes random choices repeatable.
	Seed uint64
	// Quick asks for the smallest run that still shows something.
	Quick bool
	// Device is as in `laxity up --device`.
	Device string
	// DockerHost is the engine that containers run on; empty: DOCKER_HOST, else the
	// usual socket.
	DockerHost string
	// SimulatedMemory is that of each simulated GPU, bytes; 0: an H200's.
	SimulatedMemory uint64
	// Args holds what --set says, name → value.
	Args map[string]string
	// Earlier are the rows of earlier portions of the same result. Run does not return them.
	Earlier []Row
	// NewEvaluator makes the rule evaluator of `laxity up`; nil where there is none.
	NewEvaluator func(targets []EvaluatorTarget) (Evaluator, error)
}

// Row is one task or sample as measured. Times and durations are in seconds,
// memory is in bytes. The key "way" names what was measured: laxity, or an
// alternative. A stored row says with which commit, when, and in which run of its result.
type Row map[string]any

// Num returns a number of the row; NaN when it has none.
func (r Row) Num(key string) float64 {
	switch v := r[key].(type) {
	case float64:
		return v
	case int:
		return float64(v)
	case bool:
		if v {
			return 1
		}
		return 0
	default:
		return math.NaN()
	}
}

// Str returns a text of the row; "" when it has none.
func (r Row) Str(key string) string { s, _ := r[key].(string); return s }

// Figure is one number that is claimed.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	// Against names the alternative, Ratio is Value ÷ the alternative's value in
	// the same run; both absent for a figure without an alternative.
	Against string  `json:"against,omitempty"`
	Ratio   float64 `json:"ratio,omitempty"`
	// Runs is how many tasks, samples or repeats it rests on.
	Runs int `json:"runs"`
}

// Result is what was measured of an experiment, in one portion or several.
type Result struct {
	Name    string    `json:"name"`
	Machine string    `json:"machine"`
	Commit  string    `json:"commit"`
	Date    time.Time `json:"date"`
	Seed    uint64    `json:"seed"`
	// Settings are those that all rows share; absent is the default. Nil: a result from
	// before they were stored.
	Settings map[string]string `json:"settings,omitzero"`
	Rows     []Row             `json:"rows,omitempty"` // stored in a file of their own
	// Older says what has changed since in the code that it measures; empty: nothing but
	// words. It is stored beside all results, in older.txt.
	Older   string   `json:"-"`
	Figures []Figure `json:"figures"`
}

// rowsFile is where the rows lie of a result that is stored as NAME.json.
func rowsFile(name string) string { return strings.TrimSuffix(name, ".json") + ".csv.gz" }

// Write stores the result as dir/NAME.json, and its rows beside it as NAME.csv.gz. Each is replaced whole: a full disk
// or a second Ctrl-C takes none of the rows of earlier portions.
func (r Result) Write(dir string) (path string, err error) {
	var rows bytes.Buffer
	if err := writeRows(&rows, r.Rows); err != nil {
		return "", fmt.Errorf("rows of %s: %w", r.Name, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	path = filepath.Join(dir, r.Name+".json")
	if err := replace.File(rowsFile(path), rows.Bytes(), 0o644); err != nil {
		return "", err
	}
	return path, r.WriteWithoutRows(dir)
}

// WriteWithoutRows replaces dir/NAME.json alone, as where figures are computed in another way.
func (r Result) WriteWithoutRows(dir string) error {
	r.Rows = nil
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return fmt.Errorf("result of %s: %w", r.Name, err)
	}
	return replace.File(filepath.Join(dir, r.Name+".json"), append(b, '\n'), 0o644)
}

// ReadResult reads a stored result, NAME.json, with its rows.
func ReadResult(fsys fs.FS, name string) (Result, error) {
	b, err := fs.ReadFile(fsys, name)
	if err != nil {
		return Result{}, err
	}
	var r Result
	if err := json.Unmarshal(b, &r); err != nil {
		return Result{}, fmt.Errorf("%s: %w", name, err)
	}
	rows, err := fsys.Open(rowsFile(name))
	if err != nil {
		return Result{}, err
	}
	defer rows.Close()
	if r.Rows, err = readRows(rows); err != nil {
		return Result{}, fmt.Errorf("%s: %w", rowsFile(name), err)
	}
	return r, nil
}

// WriteFigures prints the figures, a line each, for a person or for grep.
func WriteFigures(w io.Writer, figures []Figure) error {
	var errs []error
	for _, f := range figures {
		line := fmt.Sprintf("%s = %s %s", f.Name, Number(f.Value), f.Unit)
		if f.Against != "" {
			line += fmt.Sprintf("  (%.2f × %s)", f.Ratio, f.Against)
		}
		_, err := fmt.Fprintf(w, "%s  n=%d\n", line, f.Runs)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Number writes a value with three or four digits that count.
func Number(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v):
		return "-"
	case a >= 1000 || v == math.Trunc(v):
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	case a >= 0.1:
		return fmt.Sprintf("%.3f", v)
	default:
		return fmt.Sprintf("%.4f", v)
	}
}

// FewestForP99 is how many samples a 99th percentile rests on at least.
const FewestForP99 = 100

// P99 is the 99th percentile; NaN of fewer samples than FewestForP99. NaN values are left out.
func P99(samples []float64) float64 {
	known := slices.DeleteFunc(slices.Clone(samples), math.IsNaN)
	if len(known) < FewestForP99 {
		return math.NaN()
	}
	return Quantile(known, 0.99)
}

// Quantile returns the q-quantile (0–1) of the values by linear interpolation;
// NaN without values. NaN values are left out.
func Quantile(values []float64, q float64) float64 {
	v := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	if len(v) == 0 {
		return math.NaN()
	}
	slices.Sort(v)
	pos := q * float64(len(v)-1)
	low := int(math.Floor(pos))
	if low+1 >= len(v) {
		return v[len(v)-1]
	}
	return v[low] + (pos-float64(low))*(v[low+1]-v[low])
}

// Median is the 0.5-quantile.
func Median(values []float64) float64 { return Quantile(values, 0.5) }

// Quartiles makes the figures of a median and of the quartiles beside it: name, name_q1 and name_q3.
func Quartiles(name string, figure func(name string, q float64) Figure) []Figure {
	return []Figure{figure(name, 0.5), figure(name+"_q1", 0.25), figure(name+"_q3", 0.75)}
}

// Max is the greatest value; NaN without values. NaN values are left out.
func Max(values []float64) float64 { return Quantile(values, 1) }

// Spread writes the median of values in a unit with their quartiles; the median alone of less than two.
func Spread(values []float64, unit float64) string {
	at := func(q float64) string { return Number(unit * Quantile(values, q)) }
	if len(values) < 2 || math.IsNaN(Median(values)) {
		return at(0.5)
	}
	return fmt.Sprintf("%s (%s–%s)", at(0.5), at(0.25), at(0.75))
}

// Mean is the arithmetic mean; NaN without values. NaN values are left out.
func Mean(values []float64) float64 {
	sum, n := 0.0, 0
	for _, v := range values {
		if !math.IsNaN(v) {
			sum, n = sum+v, n+1
		}
	}
	return sum / float64(n)
}

// Column collects the numbers under key of the rows for which keep is true.
func Column(rows []Row, key string, keep func(Row) bool) []float64 {
	var out []float64
	for _, r := range rows {
		if keep == nil || keep(r) {
			out = append(out, r.Num(key))
		}
	}
	return out
}

// Known are the numbers under key of those rows of a way that have one.
func Known(rows []Row, way, key string) []float64 {
	return Column(rows, key, func(r Row) bool { return r.Str("way") == way && !math.IsNaN(r.Num(key)) })
}

// Way keeps the rows of one way.
func Way(way string) func(Row) bool { return func(r Row) bool { return r.Str("way") == way } }
