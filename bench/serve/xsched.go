package serve

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strconv"

	"github.com/docker/docker/api/types/mount"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/tenant"
	"github.com/laxity/laxity/internal/daemon"
)

// xsched is how XSched is used: its folder is given, nothing of it is here.
type xsched struct {
	folder   string // empty: not given
	level    int    // of preemption
	inflight int    // commands of a trainer
}

func parseXSched(env bench.Env) (x xsched, err error) {
	if x.folder, err = env.Peer(withXSched); x.folder == "" || err != nil {
		return x, err
	}
	if x.level, err = env.Number(withXSched+"-level", 1, 1); err != nil {
		return x, err
	}
	x.inflight, err = env.Number(withXSched+"-inflight", 1, 4)
	return x, err
}

// spec is what a container needs: the shim is found before the driver, whose folder this is (empty: the
// system's), and the server knows programs by their PIDs and talks to them by IPC.
func (x xsched) spec(driver string) tenant.Spec {
	library := filepath.Join(x.folder, "lib")
	s := tenant.Spec{
		Env:    []string{"XSCHED_SCHEDULER=GLB", "XSCHED_AUTO_XQUEUE=ON", "XSCHED_AUTO_XQUEUE_LEVEL=" + strconv.Itoa(x.level)},
		Mounts: []mount.Mount{{Type: mount.TypeBind, Source: x.folder, Target: x.folder, ReadOnly: true}},
		IPC:    "host", PID: "host",
	}
	if driver == "" {
		s.Env = append(s.Env, "LD_LIBRARY_PATH="+library)
	} else {
		s.Env = append(s.Env, "LD_LIBRARY_PATH="+library+":"+driver, "XSCHED_CUDA_LIB="+filepath.Join(driver, "libcuda.so.1"))
	}
	return s
}

// priority puts a server before trainers. Its own defaults let 16 commands to the GPU at a time, 8 in a batch;
// for the lower priority its example takes 4, and half of that in a batch.
func (x xsched) priority(r role) []string {
	priority, inflight := 1, 16
	if !r.answers() {
		priority, inflight = 0, x.inflight
	}
	return []string{
		fmt.Sprintf("XSCHED_AUTO_XQUEUE_PRIORITY=%d", priority), fmt.Sprintf("XSCHED_AUTO_XQUEUE_THRESHOLD=%d", inflight),
		fmt.Sprintf("XSCHED_AUTO_XQUEUE_BATCH_SIZE=%d", max(1, inflight/2)),
	}
}

// xserver is XSched's server.
type xserver struct{ *daemon.Process }

// start starts the server and waits until it answers.
func (x xsched) start(ctx context.Context, dir string) (*xserver, error) {
	addresses, err := daemon.FreeAddresses(ctx, 1)
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(addresses[0])
	if err != nil {
		return nil, err
	}
	p, err := daemon.Begin(ctx, dir, filepath.Join(x.folder, "bin", "xserver"), "HPF", port)
	if err != nil {
		return nil, err
	}
	return &xserver{p}, p.Await(ctx, func() bool {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", addresses[0])
		if err != nil {
			return false
		}
		return c.Close() == nil
	})
}

// stop ends it. It may be called again, and without a server.
func (x *xserver) stop() error {
	if x == nil || x.Process == nil {
		return nil
	}
	p := x.Process
	x.Process = nil
	return p.Stop()
}
