package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/actuator/placement/api"
	"github.com/laxity/laxity/cmd/internal/usage"
	"github.com/laxity/laxity/cmd/laxity/internal/run"
	"github.com/laxity/laxity/internal/plain"
)

const defaultActuator = "http://127.0.0.1:9871"

const runHelp = `Run a container with a deadline on the node that suits it best.

  laxity run [--deadline 9s] [--gpu-memory 4GiB] [docker run flags] IMAGE [command]

It is docker run: every flag of docker run goes through, attached or with -d, with the
container's exit code, and Ctrl-C reaches the container. Also as docker laxity run. Where the
engine of this machine is Podman (DOCKER_HOST, the docker context in use), it is podman run.

  laxity run --deadline 9s --gpu-memory 4GiB --rm trainer:1 ./train
  laxity run --deadline 9s --estimate 3s -d --name web inference:2
  laxity run --require --deadline 9s trainer:1           or not at all, if that cannot be promised
  laxity run --node gpu-2 --deadline 500ms trainer:1     on this node, or not at all
  laxity run --node local --gpus all trainer:1           docker run here, with labels; no actuator
  laxity run --node gpu-2 --gpu-request none --gpus '"device=0,1"' trainer:1     several GPUs, by hand

Flags besides docker's:
  --deadline 9s            Each GPU task is due this long after its start (laxity.deadline).
  --gpu-memory 4GiB        GPU memory it may hold, reserved on the chosen GPU (laxity.gpu-memory).
  --estimate 3s            How long a task takes, for the predictive ranking. Default: what the
                           last tasks of the image took.
  --require[=known]        Start it only if its deadline, or its laxity.share, can be kept beside what
                           runs on the chosen GPU, or has just been started there: by --estimate,
                           else by the last task of the image there. If not, laxity says why, and
                           which deadline could be met. Where nobody knows, it starts, and laxity
                           says so; =known refuses then.
  --node auto|local|NAME   Where. auto: the actuator chooses (laxity nodes says how).
  --gpu-request auto|none  auto: it gets the chosen GPU alone, by UUID; --gpus, --privileged and
                           what else would give it others are refused. none leaves it to you.
  --actuator.url URL       The actuator that places. Default: $LAXITY_ACTUATOR_URL, or
                           ` + defaultActuator + `. Credentials: $LAXITY_HTTP_CONFIG names an http_config
                           of Prometheus, such as authorization: {credentials_file: token}.
  --token.file FILE        File with its token (laxity --help). Default: $LAXITY_TOKEN_FILE.

Where no GPU keeps every deadline it starts on the one with the least work that has the memory,
and laxity says what may be missed. Without room, or without an actuator, it does not start.

The place is reserved before the container is made, checked again right before, and given
back if docker fails; then nothing is left behind. Exit code 125: no container ran. 122: none
was made, because of --require. 128 and a signal: it came before docker started.`

const createHelp = `Create a container on the node that suits it best, without starting it.

  laxity create --deadline 9s --gpu-memory 4GiB --name web inference:2
  docker start web

It is docker create with a deadline; all flags as in laxity run. The reservation waits for its
first task as long as the actuator's --placement.ttl says.`

var dockerHelp = map[string]string{"run": runHelp, "create": createHelp}

// addRun adds run and create to --help. realMain sends them to runDocker, because their flags
// are docker's.
func (c *cli) addRun() {
	for _, name := range []string{"run", "create"} {
		cmd := c.command(name, dockerHelp[name], func(context.Context, *slog.Logger) error {
			return usage.Wrong(fmt.Errorf("write laxity %s first, and its flags after it", name))
		})
		cmd.Arg("args", "As of docker "+name+".").Strings()
	}
}

// runDocker is `laxity run` and `laxity create`. options are docker's global ones, which the
// plugin got.
func runDocker(command string, args, options []string, stdout, stderr io.Writer) int {
	// The container's output goes through as it is. Our own is made plain.
	own := plain.NewWriter(stderr)
	fail := func(err error) int {
		fmt.Fprintf(own, "laxity: %v\n", err)
		return run.ExitFailed
	}
	spec, err := run.Parse(command, args)
	if err != nil {
		return fail(fmt.Errorf("%w; see 'laxity %s --help'", err, command))
	}
	if spec.Help {
		fmt.Fprintln(stdout, dockerHelp[command])
		return exitOK
	}
	transport, err := clientFromEnv(spec.TokenFile)
	if err != nil {
		return fail(err)
	}
	client, err := api.NewClient(cmp.Or(spec.Actuator, os.Getenv(actuatorEnv), defaultActuator), transport)
	if err != nil {
		return fail(err)
	}
	return runContainer(spec, client, options, stdout, stderr)
}

// runContainer runs docker with the terminal's signals, and returns its exit code.
func runContainer(spec run.Spec, places run.Placements, options []string, stdout, stderr io.Writer) int {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	defer signal.Stop(signals)
	go followPlugin(os.Getenv(pluginSocket), func() {
		select {
		case signals <- syscall.SIGTERM:
		default: // enough signals are on their way
		}
	})
	r := run.Runner{
		Docker: append([]string{"docker"}, options...), Podman: run.Podman(context.Background(), options), Placements: places,
		Stdin: os.Stdin, Stdout: stdout, Stderr: stderr, Signals: signals, Received: fromTerminal,
	}
	code, err := r.Run(context.Background(), spec)
	if err != nil {
		fmt.Fprintf(plain.NewWriter(stderr), "laxity: %v\n", refused(err))
		return max(code, 1)
	}
	return code
}

// fromTerminal reports whether the terminal sent this signal to all of its foreground
// processes, docker among them. Docker would take a second one for impatience.
func fromTerminal(s os.Signal) bool {
	if s != os.Interrupt && s != syscall.SIGQUIT {
		return false
	}
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// pluginSocket names the socket that the docker command listens on for its plugins.
const pluginSocket = "DOCKER_CLI_PLUGIN_SOCKET"

// followPlugin calls ended when the docker command that started this plugin ends. That
// command closes the socket when it gets a signal and has no terminal.
func followPlugin(socket string, ended func()) {
	if socket == "" {
		return
	}
	c, err := (&net.Dialer{}).DialContext(context.Background(), "unix", socket)
	if err != nil {
		return
	}
	defer c.Close()
	_, _ = io.Copy(io.Discard, c)
	ended()
}
