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

Every figure that Laxity claims comes from one of these experiments. The raw rows are stored
as --out/NAME.json. Without an NVIDIA GPU the simulated one is used: its figures show that the
experiment works, not how fast anything is.`

func (c *cli) addBench() {
	var (
		env   = bench.Env{Args: map[string]string{}}
		name  string
		out   string
		title []string
		set   = map[string]string{}
	)
	all := experiments.All()
	for _, e := range all {
		title = append(title, fmt.Sprintf("%s: %s", e.Name, e.Title))
	}
	cmd := c.command("bench", benchHelp+"\n\nExperiments:\n\n  "+strings.Join(title, "\n  "),
		func(ctx context.Context, _ *slog.Logger) error {
			env.Args, env.NewEngine = set, newBenchEngine
			env.Log = func(format string, args ...any) { fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...) }
			e, ok := experiments.Find(name)
			if !ok {
				return fmt.Errorf("no experiment %q; known are %s", name, strings.Join(experiments.Names(), ", "))
			}
			return c.measure(ctx, e, env, out)
		})
	cmd.Arg("name", "The experiment.").Required().HintOptions(experiments.Names()...).StringVar(&name)
	cmd.Flag("device", "auto (NVIDIA if there is one, else simulated), nvml or sim.").Default("auto").EnumVar(&env.Device, "auto", "nvml", "sim")
	cmd.Flag("seed", "For random choices.").Default("1").Uint64Var(&env.Seed)
	cmd.Flag("quick", "The smallest run that shows something.").BoolVar(&env.Quick)
	cmd.Flag("out", "Folder for the stored result; empty stores nothing.").Default("bench/results").StringVar(&out)
	cmd.Flag("set", "An experiment's own setting, name=value; repeatable.").StringMapVar(&set)
	c.quiet["bench"] = true

	var results, page string
	report := c.command("bench-report", "Write the page of measurements from the stored results.",
		func(context.Context, *slog.Logger) error { return writeReport(results, page) }).Hidden()
	report.Flag("results", "Folder of the stored results.").Default("bench/results").StringVar(&results)
	report.Flag("page", "The page.").Default("bench/README.md").StringVar(&page)
}

func writeReport(results, page string) error {
	stored, err := experiments.Stored(os.DirFS(results))
	if err != nil {
		return err
	}
	var text strings.Builder
	if err := bench.Report(&text, experiments.All(), stored); err != nil {
		return err
	}
	return os.WriteFile(page, []byte(text.String()), 0o644)
}

func (c *cli) measure(ctx context.Context, e bench.Experiment, env bench.Env, out string) error {
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
		default:
			return err
		}
	}
	machine = fmt.Sprintf("%s, %d CPU cores, %s/%s", machine, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
	rows, err := e.Run(ctx, env)
	if len(rows) == 0 {
		return errors.Join(err, errors.New("nothing was measured"))
	}
	r := bench.Result{Name: e.Name, Machine: machine, Commit: version.Revision, Date: time.Now().UTC().Truncate(time.Second),
		Seed: env.Seed, Rows: rows, Figures: e.FiguresOf(rows)}
	fmt.Fprintf(c.out, "%s\n%s\n\n", e.Title, machine)
	if terr := view.Columns(c.out, e.Table(rows), 0, 0); terr != nil {
		return errors.Join(err, terr)
	}
	fmt.Fprintln(c.out)
	if terr := bench.WriteFigures(c.out, r.Figures); terr != nil {
		return errors.Join(err, terr)
	}
	if out == "" {
		return err
	}
	path, werr := r.Write(out)
	if werr == nil {
		fmt.Fprintf(c.out, "\nstored as %s\n", path)
	}
	return errors.Join(err, werr)
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
