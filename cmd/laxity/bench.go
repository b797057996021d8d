package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/common/version"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/experiments"
	"github.com/laxity/laxity/cmd/laxity/internal/engine"
	"github.com/laxity/laxity/cmd/laxity/internal/view"
	"github.com/laxity/laxity/exporter"
	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/rules"
)

const benchHelp = `Measure Laxity beside its alternatives, in one run, and print a table.

  laxity bench list
  laxity bench events                     progress on standard error, the table on standard output
  laxity bench events --quick --out=      the smallest run; nothing is stored
  laxity bench arbitrate --set ways=default,laxity

Every figure that Laxity claims comes from one of these experiments. The raw rows are stored
as --out/NAME.json; those of a run that was stopped or failed as NAME.partial.json. Without an
NVIDIA GPU the simulated one is used: its figures show that the experiment works, not how fast
anything is.`

func (c *cli) addBench() {
	var (
		env   = bench.Env{Args: map[string]string{}}
		name  string
		out   string
		title []string
		set   = map[string]string{}

		asJSON bool
	)
	all := experiments.All()
	for _, e := range all {
		title = append(title, fmt.Sprintf("%s: %s", e.Name, e.Title))
	}
	cmd := c.command("bench", benchHelp+"\n\nExperiments:\n\n  "+strings.Join(title, "\n  "),
		func(ctx context.Context, _ *slog.Logger) error {
			if name == "list" {
				return c.listExperiments(all, out, asJSON)
			}
			began := time.Now()
			env.Args, env.NewEngine = set, newBenchEngine
			env.Log = func(format string, args ...any) {
				fmt.Fprintf(os.Stderr, "bench %4.0fs: "+format+"\n", append([]any{time.Since(began).Seconds()}, args...)...)
			}
			e, ok := experiments.Find(name)
			if !ok {
				return fmt.Errorf("no experiment %q; laxity bench list has them: %s", name, strings.Join(experiments.Names(), ", "))
			}
			if err := e.CheckSettings(set); err != nil {
				return err
			}
			return c.measure(ctx, e, env, out, asJSON)
		})
	cmd.Arg("name", "The experiment, or list.").Required().HintOptions(append(experiments.Names(), "list")...).StringVar(&name)
	cmd.Flag("json", "Print JSON: the list, or the result as it is stored.").BoolVar(&asJSON)
	cmd.Flag("device", "auto (NVIDIA if there is one, else simulated), nvml or sim.").Default("auto").EnumVar(&env.Device, "auto", "nvml", "sim")
	cmd.Flag("seed", "For random choices.").Default("1").Uint64Var(&env.Seed)
	cmd.Flag("quick", "The smallest run that shows something.").BoolVar(&env.Quick)
	cmd.Flag("out", "Folder for the stored result; empty stores nothing.").Default("bench/results").StringVar(&out)
	cmd.Flag("set", "An experiment's own setting, name=value; repeatable. A wrong name lists them.").StringMapVar(&set)
	c.quiet["bench"] = true

	var results, folder string
	report := c.command("bench-report", "Write the page of measurements and its charts from the stored results.",
		func(context.Context, *slog.Logger) error { return writeReport(results, folder) }).Hidden()
	report.Flag("results", "Folder of the stored results.").Default("bench/results").StringVar(&results)
	report.Flag("folder", "Where README.md and charts/ go.").Default("bench").StringVar(&folder)
}

func writeReport(results, folder string) error {
	stored, err := experiments.Stored(os.DirFS(results))
	if err != nil {
		return err
	}
	return bench.WriteReport(folder, experiments.All(), stored)
}

// listed is one line of `laxity bench list`.
type listed struct {
	Name     string `json:"name"`
	Title    string `json:"title"`
	NeedsGPU bool   `json:"needs_gpu"`
	// Settings are what --set may say.
	Settings []bench.Setting `json:"settings,omitempty"`
	// Stored is when it was last measured, with which machine and commit; absent
	// where no result is stored.
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
	return view.Painted(c.out, lines, width(c.out), 3, colours(c.out), nil)
}

// machineOf opens the GPU for a moment: it chooses the device where that is left
// open, and names the machine.
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

func (c *cli) measure(ctx context.Context, e bench.Experiment, env bench.Env, out string, asJSON bool) error {
	machine, err := machineOf(ctx, e, &env)
	if err != nil {
		return err
	}
	rows, err := e.Run(ctx, env)
	if len(rows) == 0 {
		return errors.Join(err, errors.New("nothing was measured"))
	}
	r := bench.Result{Name: e.Name, Machine: machine, Commit: version.Revision, Date: time.Now().UTC().Truncate(time.Second),
		Seed: env.Seed, Rows: rows, Figures: e.FiguresOf(rows)}
	if out != "" {
		stored := r
		if err != nil { // what is there already may be the whole
			stored.Name += ".partial"
		}
		path, werr := stored.Write(out)
		if werr == nil {
			env.Log("stored as %s", path)
		}
		err = errors.Join(err, werr)
	}
	if asJSON {
		return errors.Join(err, writeJSON(c.out, r))
	}
	fmt.Fprintf(c.out, "%s\n%s\n\n", e.Title, machine)
	if terr := view.Columns(c.out, e.Table(rows), 0, 0); terr != nil {
		return errors.Join(err, terr)
	}
	fmt.Fprintln(c.out)
	return errors.Join(err, bench.WriteFigures(c.out, r.Figures))
}

// benchEngine lends the engine inside this program to experiments.
type benchEngine struct{ *engine.Engine }

func newBenchEngine(targets []bench.EngineTarget) (bench.Engine, error) {
	o := engine.Options{Rules: rules.FS}
	for _, t := range targets {
		o.Targets = append(o.Targets, engine.Target(t))
	}
	e, err := engine.New(o)
	if err != nil {
		return nil, err
	}
	return benchEngine{e}, nil
}

func (e benchEngine) Evaluate(ctx context.Context) (ingest, rules time.Duration, err error) {
	err = e.Engine.Evaluate(ctx)
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
