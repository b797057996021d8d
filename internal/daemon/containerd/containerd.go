// Package containerd starts a separate containerd with its CRI service, which may be stopped, killed
// and started again, for experiments and tests. It has its own folders and images; containers and
// pods are made through it, without a registry and without a network plugin.
//
// Of ours it imports internal/daemon.
package containerd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/laxity/laxity/internal/daemon"
)

// Engine is a separate containerd.
type Engine struct {
	// Address is its socket.
	Address string
	// Client and Pods talk to it.
	Client *client.Client
	Pods   cri.RuntimeServiceClient

	daemon.Service // which Stop ends as an upgrade does

	dir  string
	conn *grpc.ClientConn
}

// pauseImage keeps pods together.
const pauseImage = "laxity.test/pause:1"

// snapshotter copies files: it works on every file system.
const snapshotter = "native"

// New starts containerd. The error says what is missing here: root, containerd, runc, or what they
// say. program is a static binary that runs until it gets SIGTERM, for the sandboxes of pods.
// Close removes all of it.
func New(ctx context.Context, program string) (_ *Engine, err error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("a containerd of its own needs root")
	}
	for _, name := range []string{"containerd", "runc"} {
		if _, err := exec.LookPath(name); err != nil {
			return nil, err
		}
	}
	// The path of a socket must be short.
	dir, err := os.MkdirTemp("", "laxity-containerd-")
	if err != nil {
		return nil, err
	}
	e := &Engine{dir: dir, Address: filepath.Join(dir, "c.sock")}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("no containerd of its own can be had here: %w", err), e.Close())
		}
	}()
	if e.conn, err = grpc.NewClient("unix://"+e.Address, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		return nil, err
	}
	if e.Client, err = client.NewWithConn(e.conn); err != nil {
		return nil, err
	}
	e.Pods = cri.NewRuntimeServiceClient(e.conn)
	if err := e.Start(ctx); err != nil {
		return nil, err
	}
	return e, e.Import(ctx, pauseImage, map[string]string{"/pause": program}, []string{"/pause"})
}

// config disables the snapshotters that complain on most machines, and names our pause image.
const config = `version = 2
disabled_plugins = ["io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing"]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "` + pauseImage + `"
  disable_tcp_service = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "` + snapshotter + `"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "DIR/cni/bin"
    conf_dir = "DIR/cni/conf"
`

// Start starts containerd, again after Stop or Kill, and waits until it answers. Containers live on
// while it is stopped.
func (e *Engine) Start(ctx context.Context) error {
	file := filepath.Join(e.dir, "config.toml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(config, "DIR", e.dir)), 0o600); err != nil {
		return err
	}
	// It ends with the engine and not with ctx: containers are removed after ctx ended.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "containerd", "--config="+file, "--root="+filepath.Join(e.dir, "root"),
		"--state="+filepath.Join(e.dir, "state"), "--address="+e.Address)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return e.Service.Run(ctx, cmd, func() bool {
		_, err := e.Pods.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{}, grpc.WaitForReady(true))
		return err == nil
	})
}

// Close ends everything, also what runs in containers, and removes the folders.
func (e *Engine) Close() error {
	var errs []error
	if e.Runs() {
		errs = append(errs, e.removeAll())
	}
	errs = append(errs, e.Stop())
	if e.conn != nil {
		errs = append(errs, e.conn.Close())
	}
	daemon.KillShims(e.Address)
	return errors.Join(append(errs, daemon.RemoveFolder(e.dir))...)
}

// removeAll removes pods and containers, with their control groups.
func (e *Engine) removeAll() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var errs []error
	pods, err := e.Pods.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	for _, p := range pods.GetItems() {
		errs = append(errs, e.RemovePod(ctx, p.GetId()))
	}
	containers, cerr := e.Client.Containers(namespaces.WithNamespace(ctx, "default"))
	for _, c := range containers {
		errs = append(errs, e.RemoveContainer(ctx, c.ID()))
	}
	return errors.Join(append(errs, err, cerr)...)
}
