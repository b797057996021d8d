package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/docker/docker/client"

	"github.com/laxity/laxity/cmd/internal/usage"
	"github.com/laxity/laxity/cmd/laxity/internal/allinone"
	"github.com/laxity/laxity/cmd/laxity/internal/run"
	"github.com/laxity/laxity/cmd/laxity/internal/simrun"
	"github.com/laxity/laxity/exporter/device/sim"
	"github.com/laxity/laxity/exporter/device/sim/cuda"
	"github.com/laxity/laxity/internal/engine"
	"github.com/laxity/laxity/internal/plain"
)

const simHelp = `Run containers on a simulated GPU: your own, or one that is built in.

  sudo laxity up --device=sim                       in one terminal: Laxity and a simulated GPU
  laxity sim run --deadline 9s                      in another one: a container on it

laxity sim run --help has more.`

const simRunHelp = `Run a container on a simulated GPU.

  laxity sim run [--deadline 9s] [--gpu-memory 4GiB] [docker run flags] [IMAGE [command] | matmul | server]

Without an image it runs matmul, which is built in: a minute of tasks, each 5 s of matrix
multiplication. server is built in too: a minute of short requests. Both run in the background,
and are gone when they end. Arguments after their names are theirs: laxity sim run matmul --help
lists them. The first run makes their image, laxity-sim.

  laxity sim run --deadline 9s                      twice, and they contend for the GPU
  laxity sim run --deadline 50ms server
  laxity sim run --deadline 12s --name red matmul --n 512 --runs 3
  laxity sim run --deadline 9s --gpu-memory 4GiB --rm my-cuda-image ./train

An image of your own runs as docker run would, with a stand-in for libcuda.so.1 that knows the
driver API. Memory on the simulated GPU has no content. It is slow: a multiplication of 512²
matrices takes as long as one of 16384² on an H200.

Flags besides docker's:
  --deadline 9s            Each GPU task is due this long after its start (laxity.deadline).
  --gpu-memory 4GiB        GPU memory it may hold (laxity.gpu-memory).
  --socket FILE            Socket of the simulated GPU. Default: $LAXITY_SIM_SOCKET, or that of a
                           laxity up --device=sim, of laxity sim serve, or of the Compose
                           stack, whichever answers.

Exit codes are docker's. 125: no container ran.`

const simServeHelp = `Serve a simulated GPU for an exporter that runs by hand.

  sudo laxity sim serve
  sudo laxity-exporter --device=sim:` + simrun.FleetSocket + `
  laxity sim run --deadline 9s

laxity up --device=sim has one of its own.`

// defaultSimSocket is that of a laxity up --device=sim without --state-dir.
func defaultSimSocket() string { return allinone.SimSocket(defaultStateDir()) }

// simSockets are where a simulated GPU is looked for.
func simSockets(named string) []string {
	for _, socket := range []string{named, os.Getenv(cuda.EnvSocket)} {
		if socket != "" {
			return []string{socket}
		}
	}
	return slices.Compact([]string{defaultSimSocket(), allinone.SimSocket(rootStateDir), simrun.FleetSocket})
}

func (c *cli) addSim() {
	cmd := c.app.Command("sim", simHelp)
	forHelp := cmd.Command("run", simRunHelp)
	forHelp.Arg("args", "As of docker run.").HintOptions(simrun.Programs()...).Strings()
	c.runs["sim run"] = func(context.Context, *slog.Logger) error {
		return usage.Wrong(errors.New("write laxity sim run first, and its flags after it"))
	}
	serve := cmd.Command("serve", simServeHelp)
	socket := serve.Flag("socket", "Unix socket to listen on.").Default(simrun.FleetSocket).String()
	c.runs["sim serve"] = func(ctx context.Context, log *slog.Logger) error { return serveSim(ctx, *socket, log) }
	c.endless["sim serve"] = true
}

// serveSim serves a simulated GPU until ctx ends.
func serveSim(ctx context.Context, socket string, log *slog.Logger) error {
	o := simrun.Card()
	o.Logger = log
	gpu, err := sim.New(o)
	if err != nil {
		return err
	}
	if d, err := sim.Dial(socket); err == nil {
		d.Close()
		return fmt.Errorf("another simulated GPU serves at %s (choose another with --socket)", socket)
	}
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		return fmt.Errorf("%w (choose another place with --socket)", err)
	}
	l, err := sim.Listen(ctx, socket)
	if err != nil {
		return err
	}
	log.Info("a simulated GPU serves", "socket", socket)
	return gpu.Serve(ctx, l)
}

// usageOf is the help of the built-in programs.
func usageOf(ctx context.Context, docker *client.Client, makeImage func() (string, error), args []string) (string, error) {
	image, err := makeImage()
	if err != nil {
		return "", err
	}
	return simrun.Usage(ctx, docker, image, args)
}

// useEngineOfUp names the engine that laxity up finds, as root's Podman or a docker context's, to this process and to
// the commands that it runs.
func useEngineOfUp(m engine.Machine, setenv func(key, value string) error) error {
	if chosen, _ := (engine.Choice{}).Resolve(m); chosen.DockerHost != m.Getenv(client.EnvOverrideHost) {
		return setenv(client.EnvOverrideHost, chosen.DockerHost)
	}
	return nil
}

// engineClient is a client of the engine that docker's global options choose, else the environment.
func engineClient(ctx context.Context, options []string) (*client.Client, error) {
	opts := []client.Opt{client.FromEnv, client.WithAPIVersionNegotiation()}
	host := run.Option(options, "host")
	if name := run.Option(options, "context"); name != "" {
		ask := append(slices.Clone(options), "context", "inspect", "--format", "{{.Endpoints.docker.Host}}", name)
		out, err := exec.CommandContext(ctx, "docker", ask...).CombinedOutput()
		if host = strings.TrimSpace(string(out)); err != nil {
			return nil, fmt.Errorf("docker context inspect %s: %w: %s", name, err, host)
		}
	}
	if host != "" {
		opts = append(opts, client.WithHost(host))
	}
	return client.NewClientWithOpts(opts...)
}

// runSim is `laxity sim run`. options are docker's global ones.
func runSim(args, options []string, stdout, stderr io.Writer) int {
	own := plain.NewWriter(stderr)
	fail := func(err error) int {
		fmt.Fprintf(own, "laxity: %v\n", err)
		return run.ExitFailed
	}
	spec, err := run.Parse(run.Simulated, args)
	if err != nil {
		return fail(fmt.Errorf("%w; see 'laxity sim run --help'", err))
	}
	if spec.Help {
		fmt.Fprintln(stdout, simRunHelp)
		return exitOK
	}
	if err := useEngineOfUp(engine.This, os.Setenv); err != nil {
		return fail(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	docker, err := engineClient(ctx, options)
	if err != nil {
		return fail(fmt.Errorf("docker: %w", err))
	}
	defer docker.Close()
	makeImage := func() (string, error) { return simrun.Image(ctx, docker) }
	if simrun.AsksUsage(spec.Image, spec.Args) {
		text, err := usageOf(ctx, docker, makeImage, spec.Args)
		if err != nil {
			return fail(err)
		}
		fmt.Fprint(stdout, text)
		return exitOK
	}
	gpu, err := simrun.Find(ctx, docker, simSockets(spec.Socket))
	if err != nil {
		return fail(err)
	}
	program, asked := spec.Image, spec.Args
	spec, builtIn, err := simrun.Prepare(spec, gpu, makeImage, strings.ToLower(rand.Text()[:4]))
	if err != nil {
		return fail(err)
	}
	if builtIn == "" {
		return runContainer(spec, nil, options, stdout, stderr)
	}
	if len(asked) > 0 {
		if _, err := simrun.Usage(ctx, docker, spec.Image, asked); err != nil {
			return fail(fmt.Errorf("%w; see 'laxity sim run %s --help'", err, program))
		}
	}
	var id strings.Builder
	if code := runContainer(spec, nil, options, &id, stderr); code != exitOK {
		return code
	}
	fmt.Fprintf(plain.NewWriter(stdout), "%s runs on the simulated GPU. What it does: laxity ps, or laxity why %[1]s. To end it: docker rm -f %[1]s\n", builtIn)
	return exitOK
}
