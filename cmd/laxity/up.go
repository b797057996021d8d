package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/exporter-toolkit/web"
	"github.com/prometheus/exporter-toolkit/web/kingpinflag"

	"github.com/laxity/laxity/actuator/allocator"
	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/actuator/profile"
	"github.com/laxity/laxity/cmd/internal/evaluator"
	"github.com/laxity/laxity/cmd/internal/usage"
	"github.com/laxity/laxity/cmd/laxity/internal/allinone"
	"github.com/laxity/laxity/cmd/laxity/internal/simrun"
	"github.com/laxity/laxity/exporter"
	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/internal/access"
)

const upHelp = `Run exporter, rule evaluator and actuator in this process, for one machine.

Watches the GPU tasks of all containers of the engine here (Docker, Podman, containerd or CRI-O), and
decides whose work the GPU does, so that deadlines are met. It acts on containers with at least one
laxity.* label alone: by time slices, and by taking them off the GPU for a moment; by pauses where
that does not work. Ctrl-C releases everything.

  docker run -d --gpus all --label laxity.deadline=9s IMAGE
  sudo laxity up
  laxity ps

On a terminal it says what it found, then one line for each event: a task began, was held, ended in
time, or missed its deadline. Elsewhere, and with --log.format, it logs.

It listens on this machine alone. Everybody on it may read. Requests that change something need
a token. Each start writes a new one to the file token in --state-dir, readable by its owner
(and --token.group) alone. laxity deadline, run and the like read it there. A browser asks for it
as the password of any user at Sign in. Other programs send it as bearer token or as password.
If --web.config.file makes clients authenticate, there is no token, and they may act.`

// upCommand is laxity up's flags.
type upCommand struct {
	*cli
	allinone.Options
	exporters                *web.FlagConfig
	address                  string
	arbitrate, hold, several string
	files                    access.Files
	group                    string
}

func (c *cli) addUp() {
	u := &upCommand{cli: c, Options: allinone.Options{Config: config.DefaultConfig()}}
	cmd := c.command("up", upHelp, u.up)
	cmd.Flag("node", "Name of this machine in metrics and snapshots. Default: the host name.").StringVar(&u.Node)
	cmd.Flag("device", "The GPUs: auto or nvml for NVIDIA's, sim for a simulated one in this process, or sim:SOCKET for one elsewhere.").Default("auto").StringVar(&u.Device)
	cmd.Flag("sensor", "How starts of tasks are learned: auto (the most exact way that works here), uprobe, fanotify, or device (the GPU's process list alone).").Default("auto").EnumVar(&u.Sensor, exporter.Sensors...)
	usage.Engine(cmd, &u.Engine)
	cmd.Flag("state-dir", "Folder for what must survive a restart: deadlines, history, holds.").Default(defaultStateDir()).StringVar(&u.StateDir)
	cmd.Flag("rules", "A rules file to load besides the built-in ones; repeatable.").ExistingFilesVar(&u.RuleFiles)
	usage.Positive(cmd.Flag("interval", "Time between evaluations of the rules, while tasks share a GPU or one is nearly full; otherwise 1s, if that is longer."), evaluator.DefaultInterval, &u.Interval)
	cmd.Flag("lock-dir", "Folder in which the actuators of one engine find each other. One acts, the others stand by.").Default(enforce.RunDir).Envar("LAXITY_LOCK_DIR").StringVar(&u.LockDir)
	cmd.Flag("containers.label", "Act only on containers with this label, key or key=value; repeatable. Default: all with a laxity.* label.").StringsVar((*[]string)(&u.Allow))
	cmd.Flag("share", "How many run at once: one, p3 or adaptive. Default: the policy's own.").EnumVar(&u.Config.Share, append([]string{""}, profile.Shares...)...)
	cmd.Flag("policy", "Who comes first on a contended GPU: edf (earliest deadline first), llf (least laxity first), fifo (by start) or p3 (by start, as many as fill the GPU).").Default(config.DefaultPolicy).EnumVar(&u.Config.Policy, profile.Names...)
	cmd.Flag("arbitrate", "When the policy decides: auto (while the contention alert fires), always, or never.").Default("auto").EnumVar(&u.arbitrate, "auto", "always", "never")
	cmd.Flag("hold", "How to hold containers: channels (time slices, and channels of the GPU off and on; the host side runs on), pause (the engine pauses the whole container), or auto (channels where a self-test shows that they work, otherwise pause).").Default(string(config.HoldAuto)).EnumVar(&u.hold, config.HoldModes...)
	cmd.Flag("several-gpus", "What to do with a container on several GPUs, and with the containers of a gang (laxity.gang), where channels order them: never (leave it as it is), or as-one (order it, and take all of its channels off all of its GPUs, and switch them on again, as one; tried with one job on two real GPUs).").Default(string(config.SeveralNever)).EnumVar(&u.several, config.SeveralModes...)
	cmd.Flag("late", "How long a request of a server (laxity.release=busy) keeps its place after its deadline. Other tasks lose theirs at once.").
		Default(config.DefaultLate.String()).DurationVar(&u.Config.Late)
	cmd.Flag("batch-floor", "Part of a GPU's time (above 0, up to 0.5) that containers of class batch always get while they want it. Tasks that cannot meet their deadline any more get as much.").
		Default(strconv.FormatFloat(config.DefaultBatchFloor, 'g', -1, 64)).Float64Var(&u.Config.BatchFloor)
	cmd.Flag("max-hold", "Longest time that a container is held without a break.").Default(config.DefaultMaxHold.String()).DurationVar(&u.Config.MaxHold)
	cmd.Flag("memory-guard", "Guard the allocations of containers with laxity.gpu-memory: auto (where this machine can) or off. Then each keeps to its limit, and an allocation that does not fit waits.").Default(string(config.MemoryAuto)).EnumVar((*string)(&u.MemoryGuard), config.MemoryModes...)
	cmd.Flag("memory-share", "How a GPU's memory is divided: limit (each container up to its own limit; one without a limit is not guarded), fair (equally), or adaptive (it lends what one does not use). fair and adaptive guard the allocations of all containers with a laxity.* label.").Default(string(allocator.ByLimit)).EnumVar((*string)(&u.Config.MemoryShare), allocator.Shares...)
	cmd.Flag("swap", "Swap containers off their GPUs when one with laxity.gpu-memory waits for their memory or the card is nearly full: auto (where this machine can) or off.").Default(string(config.MemoryAuto)).EnumVar((*string)(&u.Swap), config.MemoryModes...)
	cmd.Flag("ranking", "How a new container's node is chosen: predictive or paper (laxity nodes --help).").Default(string(placement.DefaultMethod)).EnumVar((*string)(&u.Ranking), placement.Methods...)
	cmd.Flag("nodes.file", "nodes.yaml: the Docker engines of other nodes. Read again when it changes.").StringVar(&u.NodesFile)
	cmd.Flag("dry-run", "Decide and record, but change nothing.").BoolVar(&u.DryRun)
	usage.Limits(cmd, &u.Limits)
	u.exporters = kingpinflag.AddFlags(cmd, "127.0.0.1:9870")
	cmd.Flag("web.allowed-host", "Name of this machine that clients on it may use, besides localhost and the host name; repeatable.").StringsVar(&u.files.Hosts)
	cmd.Flag("token.group", "Group whose members may read the token, and so may act.").StringVar(&u.group)
	cmd.Flag("actuator.listen-address", "Address of the actuator's API and page.").Default("127.0.0.1:9871").StringVar(&u.address)
}

// up runs all parts until one ends or ctx does.
func (u *upCommand) up(ctx context.Context, log *slog.Logger) error {
	u.Logger = log
	u.Config.Arbitrate = config.Arbitration(u.arbitrate)
	u.Hold, u.SeveralGPUs = config.HoldMode(u.hold), config.SeveralMode(u.several)
	if err := errors.Join(u.Config.Validate(), u.Allow.Validate()); err != nil {
		return usage.Wrong(err)
	}
	u.files.WebConfig = *u.exporters.WebConfigFile
	var err error
	if u.Access, err = u.files.Open(); err != nil {
		return err
	}
	if !u.Access.Web.Demands().Everybody() {
		u.Access.Tokens = access.TokensIn(tokenFile(u.StateDir))
	}
	// First, so that a port that is taken ends it before anything was touched.
	listening, err := listen(ctx, u.exporters, u.address)
	if err != nil {
		return err
	}
	defer listening.close()
	u.address = listening.actuator[0].Addr().String() // port 0 has become one
	stack, err := open(u.Options)
	if err != nil {
		return err
	}
	r := upRun{stack: stack, web: listening, out: u.out, talks: u.talks(), dryRun: u.DryRun, page: u.pageAt(u.address), log: log}
	if u.Access.Tokens != nil { // only now: another laxity up on this state folder has a token of its own
		addresses := append(slices.Clone(*u.exporters.WebListenAddresses), u.address)
		r.token = tokenFile(u.StateDir)
		held, err := writeToken(r.token, u.group, addresses)
		if err != nil {
			return errors.Join(err, stack.Close())
		}
		defer held.Close()
		defer removeToken(r.token, log)
		if !r.talks {
			fmt.Fprint(u.err, howToAct(r.token, u.pageAt(u.address), u.pageAt(listening.exporterAddress())))
		}
	}
	return r.run(ctx)
}

func open(o allinone.Options) (*allinone.Stack, error) {
	o.Sim = simrun.Card()
	stack, err := allinone.New(o)
	if errors.Is(err, device.ErrUnavailable) {
		err = fmt.Errorf("%w; to try Laxity without a GPU: laxity up --device=sim, or laxity demo", err)
	}
	return stack, err
}

// howToAct says where the token is and what to do with it. It does not print the token:
// output ends up in logs.
func howToAct(token, actuator, exporter string) string {
	return fmt.Sprintf(`Watch:  %[2]s
Act:    Sign in at %[2]slogin with any user name; the password is the token in %[1]s
        sudo laxity deadline CONTAINER 5s
        curl -u "laxity:$(sudo grep -v '^#' %[1]s)" -X PATCH -d '{"deadline":"5s"}' %[3]sapi/v1/containers/CONTAINER
`, token, actuator, exporter)
}

// pageAt returns where a browser on this machine finds the page of a listen address.
func (u *upCommand) pageAt(address string) string {
	scheme := "http"
	if u.Access.Web.Demands().TLS {
		scheme = "https"
	}
	return scheme + "://" + dialable(address) + "/"
}

// dialable returns the address at which a browser on this machine finds a listen address.
func dialable(address string) string {
	if host, port, err := net.SplitHostPort(address); err == nil && (host == "" || net.ParseIP(host).IsUnspecified()) {
		return net.JoinHostPort("localhost", port)
	}
	return address
}

const rootStateDir = "/var/lib/laxity"

// defaultStateDir is the system's folder for root, the user's own for others.
func defaultStateDir() string {
	if os.Geteuid() == 0 {
		return rootStateDir
	}
	if home, err := os.UserHomeDir(); err == nil {
		return filepath.Join(home, ".local", "state", "laxity")
	}
	return "laxity-state"
}

func addDockerHost(cmd *kingpin.CmdClause, host *string) {
	cmd.Flag("docker.host", "Address of the engine, Docker or Podman (unix:///run/podman/podman.sock). Default: DOCKER_HOST, else the socket of the docker context in use, else Docker's local socket, else root's Podman.").StringVar(host)
}
