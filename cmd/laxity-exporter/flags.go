package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/promslog"
	promslogflag "github.com/prometheus/common/promslog/flag"
	"github.com/prometheus/exporter-toolkit/web"
	"github.com/prometheus/exporter-toolkit/web/kingpinflag"

	"github.com/laxity/laxity/cmd/internal/usage"
	"github.com/laxity/laxity/exporter"
	"github.com/laxity/laxity/exporter/holds"
	"github.com/laxity/laxity/exporter/swaps"
)

const (
	defaultAddress = ":9870"
	help           = `Observes the GPU tasks of the containers on this machine, from outside, and publishes when each
began and ended and how much time it has to spare. It changes nothing; it needs root, to see the
processes of all containers, and the socket of the container engine.

Exit codes: 0 ended by a signal, 1 failed (the last line says why and what to do), 2 wrong usage.`
)

// config holds the values of the flags.
type config struct {
	exporter exporter.Options
	nice     int
	log      promslog.Config
	web      *web.FlagConfig
	tokens   string
	hosts    []string
}

// parse reads the flags. done is true when --help or --version has answered.
func parse(args []string, stdout, stderr io.Writer) (cfg *config, done bool, err error) {
	cfg = &config{}
	app := application(cfg)
	app.UsageWriter(stdout).ErrorWriter(stderr)
	_, done, _, err = usage.Parse(app, args)
	switch {
	case done:
		return nil, true, nil
	case err != nil:
	case cfg.nice < -20 || cfg.nice > 19:
		err = fmt.Errorf("--nice=%d: write a number from -20 to 19", cfg.nice)
	default:
		err = check(cfg.exporter)
	}
	if err != nil {
		return nil, false, errors.New(usage.Complain(app, args, err))
	}
	return cfg, false, nil
}

// application has every flag.
func application(cfg *config) *kingpin.Application {
	app := kingpin.New("laxity-exporter", help)
	app.HelpFlag.Short('h')
	app.Version(usage.Version("laxity-exporter"))
	addFlags(app, &cfg.exporter)
	app.Flag("nice", "Nice value of this process, -20 to 19: a low one lets it answer beside busy tenants. 0 leaves it as it is. It needs the right to lower it. In a container or a unit with a CPU weight, that weight counts instead.").
		Default("-10").IntVar(&cfg.nice)
	promslogflag.AddFlags(app, &cfg.log)
	cfg.web = kingpinflag.AddFlags(app, defaultAddress)
	app.Flag("web.bearer-token-file", "File of tokens, one a line. Requests that change a deadline or share need one of them (Authorization: Bearer TOKEN), also from this machine. The exporter reads the file at each request.").
		StringVar(&cfg.tokens)
	app.Flag("web.allowed-host", "Name of this machine that clients on it may use, besides localhost and the host name; repeatable. Without authentication the exporter refuses other names, because a web page can point its own name here.").
		StringsVar(&cfg.hosts)
	return app
}

func addFlags(app *kingpin.Application, o *exporter.Options) {
	host, _ := os.Hostname()
	app.Flag("node", "Name of this machine in snapshots.").Default(host).StringVar(&o.Node)
	app.Flag("device", "The GPUs: auto and nvml are the NVIDIA GPUs of this machine; sim:SOCKET are simulated ones behind a unix socket.").
		Default("auto").PlaceHolder("auto|nvml|sim:SOCKET").StringVar(&o.Device)
	app.Flag("device.timeout", "How long one reading of the GPUs may take before the driver counts as hanging.").
		Default("2s").DurationVar(&o.DeviceTimeout)
	app.Flag("sensor", "How the exporter learns when tasks start: uprobe and fanotify watch the CUDA driver library; device polls the GPU's list of processes; auto takes the most exact one that works here.").
		Default("auto").EnumVar(&o.Sensor, exporter.Sensors...)
	usage.Engine(app, &o.Engine)
	app.Flag("state-dir", "Folder that keeps unfinished tasks, history, changed deadlines and shares, and the idle power of cards over a restart. Empty: nothing is kept.").
		Default("/var/lib/laxity/exporter").StringVar(&o.StateDir)
	app.Flag("swap-dir", "Folder with a notice of each swapped task, so that it does not count as ended: the folder swapped in the actuator's --lock-dir.").
		Default(swaps.DefaultDir).StringVar(&o.SwapDir)
	app.Flag("hold-dir", "Folder with a record of each task whose channels are off the GPU, so that it counts as held. The actuator has its own in channels below /run/laxity.").
		Default(holds.DefaultDir).StringVar(&o.HoldDir)
	app.Flag("proc", "Where the host's proc file system is mounted. In a container with --pid=host it is /proc too.").
		Default("/proc").StringVar(&o.Proc)
	app.Flag("poll.fast", "Shortest time between two readings of the GPUs. It counts while a task may start or end and only the GPU's list would show it.").
		Default("20ms").DurationVar(&o.FastPoll)
	app.Flag("poll.slow", "Longest time between two readings of the GPUs. It counts while nothing happens.").
		Default("1s").DurationVar(&o.SlowPoll)
	app.Flag("busy.gap", "A busy interval (label laxity.release=busy) ends when nothing was launched for this long after work was done.").
		Default("10ms").DurationVar(&o.BusyGap)
	usage.Limits(app, &o.Limits)
	app.Flag("history.tasks", "How many ended tasks the exporter keeps. It always keeps the last one of each running container.").
		Default("100").IntVar(&o.MaxEnded)
	app.Flag("series.retention", "How long the last task and the counts of a container stay in /metrics after it is gone. The rules need 10m.").
		Default("15m").DurationVar(&o.Retention)
	app.Flag("series.limit", "Largest number of series in one scrape, besides process_* and go_*; a histogram counts as one. The exporter drops and counts the others.").
		Default("20000").IntVar(&o.MaxSeries)
	app.Flag("runtime-metrics", "Publish metrics of this process and of its Go runtime: process_* and go_*.").
		Default("true").BoolVar(&o.RuntimeMetrics)
}

// check refuses values with which the exporter cannot work.
func check(o exporter.Options) error {
	switch {
	case o.FastPoll <= 0 || o.SlowPoll <= 0 || o.DeviceTimeout <= 0:
		return errors.New("--poll.fast, --poll.slow and --device.timeout must be longer than 0")
	case o.SlowPoll < o.FastPoll:
		return fmt.Errorf("--poll.slow=%v is shorter than --poll.fast=%v", o.SlowPoll, o.FastPoll)
	case o.MaxEnded < 1 || o.MaxSeries < 100:
		return errors.New("--history.tasks must be at least 1 and --series.limit at least 100")
	case o.BusyGap <= 0 || o.Retention <= 0:
		return errors.New("--busy.gap and --series.retention must be longer than 0")
	}
	return o.Limits.Validate()
}
