package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/oklog/run"
	promconfig "github.com/prometheus/common/config"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/common/promslog/flag"
	"github.com/prometheus/exporter-toolkit/web"

	"github.com/laxity/laxity/actuator"
	"github.com/laxity/laxity/actuator/allocator"
	"github.com/laxity/laxity/actuator/arbiter/core"
	"github.com/laxity/laxity/actuator/collector"
	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/guardian/watch"
	"github.com/laxity/laxity/actuator/mechanism"
	"github.com/laxity/laxity/actuator/profile"
	"github.com/laxity/laxity/actuator/source"
	"github.com/laxity/laxity/cmd/internal/channeldriver"
	"github.com/laxity/laxity/cmd/internal/nodesfile"
	"github.com/laxity/laxity/cmd/internal/swaphelper"
	"github.com/laxity/laxity/cmd/internal/usage"
	"github.com/laxity/laxity/exporter"
	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/internal/access"
	"github.com/laxity/laxity/internal/engine"
	"github.com/laxity/laxity/internal/listener"
	"github.com/laxity/laxity/internal/sandbox"
	"github.com/laxity/laxity/internal/webserver"
)

// defaultStateDir is where the state is kept if nothing else is said.
const defaultStateDir = "/var/lib/laxity/actuator"

type serveCommand struct {
	exporter, node, stateDir, guardian string
	engine                             engine.Choice
	exporterToken, exporterConfig      string
	configFile                         string
	config                             config.Config
	arbitrate                          string
	dryRun                             bool
	listen                             []string
	webConfig, tokenFile               string
	hosts                              []string
	lockDir, hold, severalGPUs         string
	memoryGuard, swap, device          string
	labels                             core.Allow
	placement                          placementFlags
	cluster                            clusterFlags
	log                                *promslog.Config
}

func newServeCommand(app *kingpin.Application) *serveCommand {
	s := &serveCommand{log: &promslog.Config{}}
	cmd := app.Command("serve", "Act (the default).").Default()
	usage.Address(cmd.Flag("exporter", "Address of the laxity-exporter of this node."), "http://127.0.0.1:9870", &s.exporter)
	cmd.Flag("exporter.token-file", "File with the exporter's token (its --web.bearer-token-file). The page needs it to change deadlines and shares.").StringVar(&s.exporterToken)
	cmd.Flag("exporter.config.file", "Instead of the token: TLS and authorization towards the exporter, as an http_config of Prometheus. For an exporter with a --web.config.file.").StringVar(&s.exporterConfig)
	cmd.Flag("node", "Name of this node, as in the label node of alerts. Default: the exporter's.").StringVar(&s.node)
	cmd.Flag("state-dir", "Folder on a local disk for what must survive a crash: holds, leases, inbox, decisions. Give the guardian the same one.").
		Default(defaultStateDir).StringVar(&s.stateDir)
	usage.Engine(cmd, &s.engine)
	cmd.Flag("policy", "Who comes first on a contended GPU: edf (earliest deadline first), llf (least laxity first), fifo (by start), or p3 (by start, as many as fill the GPU).").
		Default(config.DefaultPolicy).EnumVar(&s.config.Policy, profile.Names...)
	cmd.Flag("share", "How many run at once: one, p3 (as many as fill the GPU), or adaptive (those that do not slow each other down). Default: the policy's own; adaptive for edf and llf, one for fifo.").
		EnumVar(&s.config.Share, append([]string{""}, profile.Shares...)...)
	cmd.Flag("arbitrate", "When the policy decides: auto (while an alert with action=arbitrate fires), always, never.").
		Default(string(config.Auto)).EnumVar(&s.arbitrate, string(config.Auto), string(config.Always), string(config.Never))
	cmd.Flag("late", "How long a request of a server (laxity.release=busy) keeps its place after its deadline. Other tasks lose theirs at once.").
		Default(config.DefaultLate.String()).DurationVar(&s.config.Late)
	cmd.Flag("batch-floor", "Part of a GPU's time (above 0, up to 0.5) that containers of class batch always get while they want it. Tasks that cannot meet their deadline any more get as much.").
		Default(strconv.FormatFloat(config.DefaultBatchFloor, 'g', -1, 64)).Float64Var(&s.config.BatchFloor)
	cmd.Flag("max-hold", "Longest time that a container is held without a break. After it the container runs to the end of its task.").
		Default(config.DefaultMaxHold.String()).DurationVar(&s.config.MaxHold)
	cmd.Flag("lease", "How long an alert counts after it was last seen firing. Alertmanager's repeat_interval must be shorter.").
		Default(config.DefaultLease.String()).DurationVar(&s.config.Lease)
	cmd.Flag("settle", "How long after a pause or unpause the GPU's utilisation shows its effect.").
		Default(config.DefaultSettle.String()).DurationVar(&s.config.Settle)
	cmd.Flag("breaker.actions", "Most pauses and unpauses within a minute. Beyond it the actuator releases everything and holds nothing for a minute.").
		Default(strconv.Itoa(config.DefaultBreakerActions)).IntVar(&s.config.BreakerActions)
	cmd.Flag("breaker.share", "Share of the managed containers (5 or more) that may be stopped at a time, but for those that a person pauses. At this share the breaker does the same.").
		Default(strconv.FormatFloat(config.DefaultBreakerShare, 'g', -1, 64)).Float64Var(&s.config.BreakerShare)
	cmd.Flag("containers.label", "Act only on containers with this label, key or key=value; repeatable. Default: all with a laxity.* label.").
		StringsVar((*[]string)(&s.labels))
	cmd.Flag("hold", "How to hold containers: channels (time slices, and channels of the GPU off and on; the host side runs on), pause (the engine pauses the whole container), or auto (channels where a self-test shows that they work, otherwise pause).").
		Default(string(config.HoldAuto)).EnumVar(&s.hold, config.HoldModes...)
	cmd.Flag("several-gpus", "What to do with a container on several GPUs, and with the containers of a gang (laxity.gang), where channels order them: never (leave it as it is), or as-one (order it, and take all of its channels off all of its GPUs, and switch them on again, as one; tried with one job on two real GPUs).").
		Default(string(config.SeveralNever)).EnumVar(&s.severalGPUs, config.SeveralModes...)
	cmd.Flag("memory-guard", "Guard the allocations of containers with laxity.gpu-memory by uprobes: auto (where this machine can) or off. Then each keeps to its limit, none blocks another for ever, and an allocation that does not fit waits instead of failing.").
		Default(string(config.MemoryAuto)).EnumVar(&s.memoryGuard, config.MemoryModes...)
	cmd.Flag("memory-share", "How a GPU's memory is divided: limit (each container up to its own limit; one without a limit is not guarded), fair (equally between the active ones), or adaptive (as fair, but it lends what one does not use, and calls it back). fair and adaptive guard the allocations of all containers with a laxity.* label.").
		Default(string(allocator.ByLimit)).EnumVar((*string)(&s.config.MemoryShare), allocator.Shares...)
	cmd.Flag("memory-wait", "Longest time that an allocation waits for memory. After it the program gets CUDA's out-of-memory error.").
		Default(config.DefaultMemoryWait.String()).DurationVar(&s.config.MemoryWait)
	cmd.Flag("device", "The GPUs, for memory guard and swap, as in the exporter's flag: auto, nvml, or sim:SOCKET.").Default("auto").StringVar(&s.device)
	cmd.Flag("swap", "Swap containers off their GPUs, by CUDA's checkpoints, when one with laxity.gpu-memory waits for their memory or the card is nearly full: auto (where this machine can) or off.").
		Default(string(config.MemoryAuto)).EnumVar(&s.swap, config.MemoryModes...)
	cmd.Flag("lock-dir", "Folder in which the actuators of one engine find each other. One acts, the others stand by.").
		Default(enforce.RunDir).Envar("LAXITY_LOCK_DIR").StringVar(&s.lockDir)
	cmd.Flag("config.file", "YAML file that overrides policy, share, late, batch_floor, memory_share, memory_wait, arbitrate, max_hold, lease, settle and breaker. SIGHUP and POST /-/reload read it again.").
		StringVar(&s.configFile)
	cmd.Flag("dry-run", "Decide and record, but change nothing.").BoolVar(&s.dryRun)
	cmd.Flag("guardian", "What to do when no guardian watches: spawn one, warn and go on, or require one: refuse to start without it, and hold nothing while it is away.").
		Default(string(watch.Spawn)).EnumVar(&s.guardian, string(watch.Spawn), string(watch.Warn), string(watch.Require))
	cmd.Flag("web.listen-address", "Address to listen on; repeatable. The actuator accepts alerts from other machines only if clients must authenticate: --web.config.file or --web.bearer-token-file.").
		Default("127.0.0.1:9871").StringsVar(&s.listen)
	cmd.Flag("web.config.file", "TLS and basic auth, as in Prometheus's exporter-toolkit.").StringVar(&s.webConfig)
	cmd.Flag("web.bearer-token-file", "File of tokens, one a line. Requests that change something need one of them (Authorization: Bearer TOKEN). The actuator reads the file at each request.").
		StringVar(&s.tokenFile)
	cmd.Flag("web.allowed-host", "Name of this machine that clients on it may use, besides localhost and the host name; repeatable. Without authentication the actuator refuses other names, because a web page can point its own name here.").
		StringsVar(&s.hosts)
	s.placement.register(cmd)
	s.cluster.register(cmd)
	flag.AddFlags(app, s.log)
	return s
}

func (s *serveCommand) run(ctx context.Context) error {
	logger := promslog.New(s.log)
	s.config.Arbitrate = config.Arbitration(s.arbitrate)
	if err := errors.Join(s.config.Validate(), s.labels.Validate()); err != nil {
		return usage.Wrong(err)
	}
	settings, err := loadConfig(s.configFile, s.config)
	if err != nil {
		return err
	}
	who, err := s.authentication()
	if err != nil {
		return err
	}
	o, err := s.options(settings, who, logger)
	if err != nil {
		return err
	}
	var a *actuator.Actuator
	list, err := openNodes(s.placement.nodes, &o)
	if err != nil {
		return err
	}
	places, err := s.placement.open(&o, list, func() string { return a.State().Node })
	if err != nil {
		return err
	}
	keepLabels, err := s.cluster.open(&o, places)
	if err != nil {
		return err
	}
	m := &o.Mechanisms
	proven := channeldriver.Prove(ctx, channeldriver.ProveOptions{
		Device: s.device, StateDir: s.stateDir, Wanted: m.Hold.Channels() && !o.DryRun, Observe: o.Metrics.ChannelCalled,
	})
	m.Channels, m.ChannelsProven, m.NoChannels, m.Instances = proven.Driver, proven.How, proven.Why, proven.Instances
	if m.NoChannels != "" {
		m.NoChannels = sandbox.Explain(m.NoChannels, o.Lacks)
	}
	if a, err = actuator.New(o); err != nil {
		return err
	}
	defer follow(ctx, places, logger)()
	defer background(ctx, logger, keepLabels, nodesfile.Follow(s.placement.nodes, nodesfile.Every, list.Reload, logger))()
	return s.serve(ctx, a, who.Tokens != nil || who.Web.Demands().Everybody(), logger)
}

// options is what the flags say of the actuator itself; run adds placement, cluster and the
// channels that the self-test allows.
func (s *serveCommand) options(settings config.Config, who access.Options, logger *slog.Logger) (actuator.Options, error) {
	client, err := s.exporterClient()
	if err != nil {
		return actuator.Options{}, err
	}
	facts, err := source.NewHTTP(s.exporter, client)
	if err != nil {
		return actuator.Options{}, usage.Wrong(fmt.Errorf("--exporter: %w", err))
	}
	o := actuator.Options{
		Node: s.node, StateDir: s.stateDir, Source: facts, Config: settings, DryRun: s.dryRun,
		Guardian: watch.Mode(s.guardian), Engine: s.engine, Device: s.device,
		Mechanisms: mechanism.Options{
			Hold: config.HoldMode(s.hold), SeveralGPUs: config.SeveralMode(s.severalGPUs),
			MemoryGuard: config.MemoryMode(s.memoryGuard), Swap: config.MemoryMode(s.swap),
			ContainerOf: container.Proc("/proc").OfPID, OpenUsage: exporter.OpenUsage(s.device),
			NewSwapper: swaphelper.OpenOptions{StateDir: s.stateDir, Engine: s.engine, LockDir: s.lockDir, Device: s.device, Logger: logger}.Open,
		},
		Allow: s.labels, LockDir: s.lockDir, Access: who, Logger: logger, Metrics: collector.New(),
	}
	if !o.DryRun {
		o.Lacks = sandbox.Check(sandbox.Actuator(enforce.RunDir, s.stateDir))
	}
	if s.configFile != "" {
		o.Load = func() (config.Config, error) { return loadConfig(s.configFile, s.config) }
	}
	return o, nil
}

// exporterClient is what asks the exporter. On this machine it believes and tells a token to root alone.
func (s *serveCommand) exporterClient() (*http.Client, error) {
	switch {
	case s.exporterConfig != "" && s.exporterToken != "":
		return nil, usage.Wrong(errors.New("--exporter.config.file and --exporter.token-file exclude each other: write authorization: {credentials_file: TOKEN-FILE} into the former"))
	case s.exporterConfig != "":
		c, err := httpConfig(s.exporterConfig)
		if err != nil {
			return nil, fmt.Errorf("--exporter.config.file: %w", err)
		}
		return promconfig.NewClientFromConfig(c, "laxity-exporter", promconfig.WithDialContextFunc(listener.OfRoot))
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = listener.OfRoot
	if s.exporterToken != "" {
		return &http.Client{Transport: access.Bearer{Path: s.exporterToken, Next: transport}}, nil
	}
	return &http.Client{Transport: transport}, nil
}

// authentication says what clients need.
func (s *serveCommand) authentication() (access.Options, error) {
	return access.Files{WebConfig: s.webConfig, Tokens: s.tokenFile, Hosts: s.hosts}.Open()
}

// daemon is what serve needs of an actuator.Actuator.
type daemon interface {
	Run(ctx context.Context) error
	Reload(ctx context.Context) error
	Handler() http.Handler
}

// serve runs the actuator, its web server and the reload signal until one ends. Its error is that of
// the actuator, whichever ended first, and that of the one which did.
func (s *serveCommand) serve(ctx context.Context, a daemon, authenticated bool, logger *slog.Logger) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if !authenticated {
		warnOfRemote(s.listen, logger)
	}
	server := webserver.New(a.Handler(), logger)
	server.BaseContext = func(net.Listener) context.Context { return ctx }
	systemd := false
	flags := &web.FlagConfig{WebListenAddresses: &s.listen, WebSystemdSocket: &systemd, WebConfigFile: &s.webConfig}

	var g run.Group
	var acting error // apart: g.Run returns only the error of the first that ends
	g.Add(func() error { acting = a.Run(ctx); return nil }, func(error) { cancel() })
	g.Add(func() error {
		err := web.ListenAndServe(server, flags, logger)
		if errors.Is(err, http.ErrServerClosed) {
			return nil
		}
		return fmt.Errorf("web server: %w", err)
	}, func(error) {
		cancel()
		stop, done := context.WithTimeout(context.Background(), 2*time.Second)
		defer done()
		_ = server.Shutdown(stop)
	})
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	g.Add(func() error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-hup:
				if err := a.Reload(ctx); err != nil {
					logger.Error("not reloaded", "err", err)
				}
			}
		}
	}, func(error) { cancel() })
	err := g.Run()
	return errors.Join(acting, err)
}

func warnOfRemote(listen []string, logger *slog.Logger) {
	for _, address := range listen {
		host, _, err := net.SplitHostPort(address)
		if ip := net.ParseIP(host); err == nil && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			logger.Warn("anybody may read the status here; alerts are taken from this machine only, because nobody has to authenticate (--web.config.file, --web.bearer-token-file)", "address", address)
		}
	}
}
