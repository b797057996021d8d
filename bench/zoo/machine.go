package zoo

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/client"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/tenant"
	"github.com/laxity/laxity/exporter/device/sim/cuda"

	"github.com/laxity/laxity/internal/daemon/dockerd"
)

// machine is the node on which rounds take place: GPUs, an engine, and the programs.
type machine struct {
	env      bench.Env
	dir      string // goes with the machine
	gpu      *bench.GPU
	docker   *client.Client
	engine   *dockerd.Engine // nil: the machine's own
	name     string          // containers carry it as their label tenant.Label
	image    string
	host     container.HostConfig
	environ  []string
	programs map[string][]string // source → command line
	made     atomic.Int64        // containers, so that no name comes twice
}

// cleanup bounds what happens after Ctrl-C.
const cleanup = 30 * time.Second

// Where containers find things.
const (
	programsIn = "/zoo"
	resultsIn  = "/zoo-out"
)

// hostFolders are lent to the containers, read-only: their image is empty.
var hostFolders = []string{"/usr", "/lib", "/lib64", "/bin", "/etc", "/opt", "/usr/local"}

// open prepares the machine; close when it is not needed.
func open(ctx context.Context, env bench.Env) (_ *machine, err error) {
	m := &machine{env: env, name: fmt.Sprintf("zoo-%d", os.Getpid()), programs: map[string][]string{}}
	m.image = "laxity-" + m.name + ":1"
	defer func() {
		if err != nil {
			err = errors.Join(err, m.close())
		}
	}()
	if m.dir, err = os.MkdirTemp("", "laxity-zoo-"); err != nil {
		return nil, err
	}
	if err := os.Chmod(m.dir, 0o755); err != nil { //nolint:gosec // tenants run as anybody
		return nil, err
	}
	if err := m.openEngine(ctx); err != nil {
		return nil, err
	}
	if m.gpu, err = env.OpenGPU(ctx, m.dir, 1); err != nil {
		return nil, err
	}
	if err := m.build(ctx); err != nil {
		return nil, err
	}
	if err := m.hostConfig(); err != nil {
		return nil, err
	}
	return m, m.importImage(ctx)
}

// openEngine takes an engine of its own, which may be restarted and on which nobody
// else has containers; where there can be none, or the setting says so, the machine's.
func (m *machine) openEngine(ctx context.Context) (err error) {
	if m.env.Args["engine"] != "machine" && m.env.DockerHost == "" {
		if m.engine, err = dockerd.New(ctx, dockerd.LiveRestore); err != nil {
			m.env.Log("using this machine's Docker engine, which is not restarted: %v", err)
		}
	}
	opts := []client.Opt{client.FromEnv, client.WithAPIVersionNegotiation()}
	if m.engine != nil {
		m.env.DockerHost = m.engine.Host
	}
	if m.env.DockerHost != "" {
		opts = append(opts, client.WithHost(m.env.DockerHost))
	}
	if m.docker, err = client.NewClientWithOpts(opts...); err != nil {
		return err
	}
	if _, err := m.docker.Ping(ctx); err != nil {
		return fmt.Errorf("the Docker engine does not answer (is it running, and may you use it?): %w", err)
	}
	return nil
}

func (m *machine) hostConfig() error {
	m.host.NetworkMode, m.host.IpcMode = "none", "private"
	add := func(from, to string, readOnly bool) {
		m.host.Mounts = append(m.host.Mounts, mount.Mount{Type: mount.TypeBind, Source: from, Target: to, ReadOnly: readOnly})
	}
	for _, f := range hostFolders {
		if _, err := os.Stat(f); err == nil {
			add(f, f, true)
		}
	}
	add(filepath.Join(m.dir, "programs"), programsIn, true)
	m.environ = []string{"HOME=/tmp", "PATH=" + os.Getenv("PATH")}
	for _, name := range []string{"PYTHONPATH", "LD_LIBRARY_PATH"} {
		if value := os.Getenv(name); value != "" && !m.gpu.Simulated() {
			m.environ = append(m.environ, name+"="+value)
		}
	}
	if !m.gpu.Simulated() {
		return m.nvidia()
	}
	library, err := cuda.Build("")
	if err != nil {
		return err
	}
	// The same places as on an image of their own, but not below what is mounted here.
	add(filepath.Dir(m.gpu.Socket), "/zoo-gpu", false)
	add(library, "/zoo-cuda", true)
	m.environ = append(m.environ, cuda.EnvSocket+"=/zoo-gpu/"+filepath.Base(m.gpu.Socket), "LD_LIBRARY_PATH=/zoo-cuda")
	return nil
}

func (m *machine) nvidia() error {
	nodes := 0
	for _, pattern := range []string{"/dev/nvidia[0-9]*", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"} {
		found, _ := filepath.Glob(pattern) // the pattern is well-formed
		for _, n := range found {
			m.host.Devices = append(m.host.Devices, container.DeviceMapping{PathOnHost: n, PathInContainer: n, CgroupPermissions: "rwm"})
			nodes++
		}
	}
	if nodes == 0 {
		return errors.New("no /dev/nvidia* on this machine: load the NVIDIA driver, or use --device=sim")
	}
	return nil
}

// importImage makes the empty image.
func (m *machine) importImage(ctx context.Context) error {
	var root bytes.Buffer
	w := tar.NewWriter(&root)
	for _, dir := range []string{"tmp", "proc", "sys", "dev", "run", "usr", "lib", "lib64", "bin", "etc", "opt", "zoo", "zoo-out", "zoo-gpu", "zoo-cuda"} {
		mode := int64(0o755)
		if dir == "tmp" {
			mode = 0o1777
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: mode}); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	answer, err := m.docker.ImageImport(ctx, image.ImportSource{Source: &root, SourceName: "-"}, m.image, image.ImportOptions{})
	if err != nil {
		return fmt.Errorf("image %s: %w", m.image, err)
	}
	defer answer.Close()
	text, err := io.ReadAll(answer)
	if err == nil && bytes.Contains(text, []byte(`"error"`)) {
		err = errors.New(string(text))
	}
	if err != nil {
		return fmt.Errorf("image %s: %w", m.image, err)
	}
	return nil
}

// close removes the containers that are left, and all the rest.
func (m *machine) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanup)
	defer cancel()
	var errs []error
	if m.docker != nil {
		errs = append(errs, m.removeAll(ctx))
		if m.engine == nil {
			_, err := m.docker.ImageRemove(ctx, m.image, image.RemoveOptions{Force: true, PruneChildren: true})
			if !cerrdefs.IsNotFound(err) {
				errs = append(errs, err)
			}
		}
		errs = append(errs, m.docker.Close())
	}
	if m.gpu != nil {
		errs = append(errs, m.gpu.Close())
	}
	if m.engine != nil {
		errs = append(errs, m.engine.Close())
	}
	if m.dir != "" {
		errs = append(errs, os.RemoveAll(m.dir))
	}
	return errors.Join(errs...)
}

func (m *machine) removeAll(ctx context.Context) error {
	list, err := m.docker.ContainerList(ctx, container.ListOptions{
		All: true, Filters: filters.NewArgs(filters.Arg("label", tenant.Label+"="+m.name)),
	})
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range list {
		errs = append(errs, m.docker.ContainerRemove(ctx, c.ID, container.RemoveOptions{Force: true}))
	}
	return errors.Join(errs...)
}
