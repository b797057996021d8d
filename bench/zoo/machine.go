package zoo

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/exporter/device/sim/cuda"
)

// machine is the node on which rounds take place: GPUs, an engine, and the programs.
type machine struct {
	env      bench.Env
	dir      string // goes with the machine
	gpu      *bench.GPU
	engine   engine
	name     string // containers carry it as their label tenant.Label
	binds    []bind // of every container
	devices  []string
	environ  []string
	programs map[string][]string // source → command line
	made     atomic.Int64        // containers, so that no name comes twice
	bound    time.Duration       // of a round with Laxity, where the reference comes afterwards
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
	m := &machine{env: env, name: fmt.Sprintf("zoo-%d", os.Getpid()), programs: map[string][]string{}, bound: boundUnknown}
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

func (m *machine) hostConfig() error {
	add := func(from, to string, readOnly bool) { m.binds = append(m.binds, bind{from, to, readOnly}) }
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
	for _, pattern := range []string{"/dev/nvidia[0-9]*", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"} {
		found, _ := filepath.Glob(pattern) // the pattern is well-formed
		m.devices = append(m.devices, found...)
	}
	if len(m.devices) == 0 {
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
	return m.engine.image(ctx, root.Bytes())
}

// close removes the containers that are left, and all the rest.
func (m *machine) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanup)
	defer cancel()
	var errs []error
	if m.engine != nil {
		errs = append(errs, m.engine.close(ctx))
	}
	if m.gpu != nil {
		errs = append(errs, m.gpu.Close())
	}
	if m.dir != "" {
		errs = append(errs, os.RemoveAll(m.dir))
	}
	return errors.Join(errs...)
}
