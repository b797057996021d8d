package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/version"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/experiments"
	"github.com/laxity/laxity/bench/papers/page"
	"github.com/laxity/laxity/cmd/internal/evaluator"
	"github.com/laxity/laxity/cmd/internal/view"
	"github.com/laxity/laxity/exporter"
	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/rules"
)

// addExperiments adds a command for each experiment.
func (c *cli) addExperiments() {
	for _, e := range experiments.All() {
		var (
			env   = bench.Env{Args: map[string]string{}}
			out   output
			given = map[string]*string{}
		)
		cmd := c.command(e.Name, e.Title+"\n\n  laxity-bench "+e.Name+"\n\n"+e.About, func(ctx context.Context, _ *slog.Logger) error {
			began := time.Now()
			env.NewEvaluator = newEvaluator
			env.Log = func(format string, args ...any) {
				fmt.Fprintf(c.err, "bench %4.0fs: "+format+"\n", append([]any{time.Since(began).Seconds()}, args...)...)
			}
			env.Print = func(format string, args ...any) { fmt.Fprintf(c.out, format+"\n", args...) }
			for name, value := range given {
				if *value != "" && *value != "false" {
					env.Args[name] = *value
				}
			}
			if err := e.CheckSettings(env.Args); err != nil {
				return err
			}
			return c.measure(ctx, e, env, out)
		})
		cmd.Flag("json", "Print the result as JSON, with its rows.").BoolVar(&out.json)
		cmd.Flag("device", "auto (NVIDIA if there is one, else simulated), nvml or sim.").Default("auto").EnumVar(&env.Device, "auto", "nvml", "sim")
		cmd.Flag("seed", "For random choices.").Default("1").Uint64Var(&env.Seed)
		cmd.Flag("quick", "The smallest run that shows something.").BoolVar(&env.Quick)
		cmd.Flag("out", "Folder for the stored result; empty stores nothing.").Default("bench/results").StringVar(&out.folder)
		if e.Portions {
			cmd.Flag("add", "A stored result of the same machine, commit (without changes), seed and settings to go on with: its rows come before these.").StringVar(&out.add)
		}
		cmd.Flag("set", "A setting, name=value; repeatable. A wrong name lists them.").StringMapVar(&env.Args)
		for _, s := range e.Settings {
			if s.Flag {
				given[s.Name] = settingFlag(cmd, s)
			}
		}
	}
}

// output says where the rows go.
type output struct {
	folder string // where the result is stored; empty: nowhere
	add    string // the stored result to which they are added; empty: none
	json   bool
}

// settingFlag adds a setting as a flag; the value is empty or "false" if it is not given.
func settingFlag(cmd *kingpin.CmdClause, s bench.Setting) *string {
	clause := cmd.Flag(s.Name, strings.ToUpper(s.Means[:1])+s.Means[1:]+".")
	if !s.Switch {
		return clause.String()
	}
	value := new(string)
	clause.SetValue((*switched)(value))
	return value
}

// switched is a flag without a value.
type switched string

func (s *switched) String() string { return string(*s) }

// Set implements kingpin.Value.
func (s *switched) Set(value string) error { *s = switched(value); return nil }

// IsBoolFlag tells kingpin that the flag takes no value.
func (*switched) IsBoolFlag() bool { return true }

func (c *cli) addList() {
	var out string
	var asJSON bool
	cmd := c.command("list", "List the experiments, and when each was measured.\n\n  laxity-bench list", func(context.Context, *slog.Logger) error {
		return c.listExperiments(experiments.All(), out, asJSON)
	})
	cmd.Flag("json", "Print JSON.").BoolVar(&asJSON)
	cmd.Flag("out", "Folder of the stored results.").Default("bench/results").StringVar(&out)
}

func (c *cli) addReport() {
	var results, folder string
	cmd := c.command("report", "Write the pages of measurements and their charts from the stored results, and compute their figures anew from their rows.\n\n  laxity-bench report",
		func(context.Context, *slog.Logger) error { return writeReport(results, folder) })
	cmd.Flag("results", "Folder of the stored results.").Default("bench/results").StringVar(&results)
	cmd.Flag("folder", "Where README.md, papers.md and charts/ go.").Default("bench").StringVar(&folder)
}

func writeReport(results, folder string) error {
	stored, err := experiments.Stored(os.DirFS(results))
	if err != nil {
		return err
	}
	for name, r := range stored { // figures follow from rows
		e, ok := experiments.Find(name)
		if !ok {
			return fmt.Errorf("%s: no experiment %q", results, name)
		}
		if again := e.FiguresOf(r.Rows); !slices.Equal(again, r.Figures) {
			r.Figures = again
			stored[name] = r
			if err := r.WriteWithoutRows(results); err != nil {
				return err
			}
		}
	}
	worse, err := experiments.Worse(os.DirFS(results))
	if err != nil {
		return err
	}
	var papers bytes.Buffer
	return errors.Join(bench.WriteReport(folder, experiments.All(), stored, worse), page.Write(&papers, stored),
		os.WriteFile(filepath.Join(folder, "papers.md"), papers.Bytes(), 0o644))
}

// listed is one line of `laxity-bench list`.
type listed struct {
	Name     string `json:"name"`
	Title    string `json:"title"`
	NeedsGPU bool   `json:"needs_gpu"`
	// Settings are the settings that --set accepts.
	Settings []bench.Setting `json:"settings,omitempty"`
	// Stored is when, on which machine and at which commit it was last measured; absent without a
	// stored result.
	Stored *storedResult `json:"stored,omitempty"`
}

type storedResult struct {
	Date    time.Time `json:"date"`
	Machine string    `json:"machine"`
	Commit  string    `json:"commit"`
}

func (c *cli) listExperiments(all []bench.Experiment, results string, asJSON bool) error {
	var list []listed
	lines := [][]string{{"NAME", "GPU", "MEASURED", "WHAT"}}
	for _, e := range all {
		one, gpu, measured := listed{Name: e.Name, Title: e.Title, NeedsGPU: e.NeedsGPU, Settings: e.Settings}, "any", "-"
		if e.NeedsGPU {
			gpu = "NVIDIA"
		}
		if r, err := bench.ReadResult(os.DirFS(results), e.Name+".json"); err == nil {
			one.Stored = &storedResult{r.Date, r.Machine, r.Commit}
			measured = r.Date.Format(time.DateOnly)
		}
		list = append(list, one)
		lines = append(lines, []string{e.Name, gpu, measured, e.Title})
	}
	if asJSON {
		return writeJSON(c.out, list)
	}
	return view.Painted(c.out, lines, view.Width(c.out), 3, view.ColoursOn(c.out), nil)
}

// machineOf opens the GPU briefly, to choose the device if none was given, and to name the machine.
func machineOf(ctx context.Context, e bench.Experiment, env *bench.Env) (string, error) {
	machine := "simulated GPU"
	if env.Device == "auto" || env.Device == "nvml" {
		d, err := exporter.OpenDevice("nvml")
		switch {
		case err == nil:
			env.Device = "nvml"
			machine = describe(ctx, d)
		case errors.Is(err, device.ErrUnavailable) && env.Device == "auto" && !e.NeedsGPU:
			env.Device = "sim"
			env.Log("no NVIDIA GPU here: using the simulated one")
		case e.NeedsGPU:
			return "", fmt.Errorf("%s needs an NVIDIA GPU: %w", e.Name, err)
		default:
			return "", err
		}
	}
	return fmt.Sprintf("%s, %d CPU cores, %s/%s", machine, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH), nil
}

func (c *cli) measure(ctx context.Context, e bench.Experiment, env bench.Env, out output) error {
	machine, err := machineOf(ctx, e, &env)
	if err != nil {
		return err
	}
	began := time.Now()
	r := bench.Result{Name: e.Name, Machine: machine, Commit: version.Revision, Seed: env.Seed, Settings: e.SettingsOf(env)}
	if out.add != "" {
		earlier, err := bench.ReadResult(os.DirFS(filepath.Dir(out.add)), filepath.Base(out.add))
		if err == nil {
			err = bench.CheckPortion(earlier, r)
		}
		if err != nil {
			return fmt.Errorf("--add=%s: %w", out.add, err)
		}
		env.Earlier = earlier.Rows
	}
	rows, err := e.Run(ctx, env)
	if errors.Is(err, bench.ErrPrinted) && len(rows) == 0 {
		return nil
	}
	if len(rows) == 0 {
		return errors.Join(err, errors.New("nothing was measured"))
	}
	bench.Stamp(rows, r.Commit, env.FirstRun(), began)
	r.Rows, r.Date = slices.Concat(env.Earlier, rows), time.Now().UTC().Truncate(time.Second)
	r.Figures = e.FiguresOf(r.Rows)
	if out.folder != "" {
		stored := r
		if err != nil { // the existing result may be the complete one
			stored = r.Partial()
		}
		path, werr := stored.Write(out.folder)
		if werr == nil {
			env.Log("stored as %s", path)
		}
		err = errors.Join(err, werr)
	}
	if out.json {
		return errors.Join(err, writeJSON(c.out, r))
	}
	fmt.Fprintf(c.out, "%s\n%s\n\n", e.Title, machine)
	if terr := view.Columns(c.out, e.Table(r.Rows), 0, 0); terr != nil {
		return errors.Join(err, terr)
	}
	fmt.Fprintln(c.out)
	return errors.Join(err, bench.WriteFigures(c.out, r.Figures))
}

// lentEvaluator gives experiments the evaluator of this program.
type lentEvaluator struct{ *evaluator.Evaluator }

func newEvaluator(targets []bench.EvaluatorTarget) (bench.Evaluator, error) {
	o := evaluator.Options{Rules: rules.FS}
	for _, t := range targets {
		o.Targets = append(o.Targets, evaluator.Target(t))
	}
	e, err := evaluator.New(o)
	if err != nil {
		return nil, err
	}
	return lentEvaluator{e}, nil
}

func (e lentEvaluator) Evaluate(ctx context.Context) (ingest, rules time.Duration, err error) {
	err = e.Evaluator.Evaluate(ctx)
	t := e.Timing()
	return t.Ingest, t.Rules, err
}

// describe names the GPUs and the driver.
func describe(ctx context.Context, d device.Device) string {
	defer d.Close()
	r, err := d.Read(ctx)
	if err != nil || len(r.GPUs) == 0 {
		return "NVIDIA GPU"
	}
	return fmt.Sprintf("%d × %s, driver %s", len(r.GPUs), r.GPUs[0].Name, r.GPUs[0].Driver)
}
