package rig

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/tenant"
	"github.com/laxity/laxity/internal/daemon"
)

// Up runs `laxity up` for this rig's containers, with these flags besides, and returns
// when it is ready. stop ends it, once everybody is let go, and returns what it said. The
// state folder of a way stays over the runs, so that it learns as a daemon does.
func (r *Rig) Up(ctx context.Context, env bench.Env, way string, flags ...string) (stop func() (said string, err error), err error) {
	program, err := daemon.Program("laxity")
	if err != nil {
		return nil, err
	}
	addresses, err := daemon.FreeAddresses(ctx, 2)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(r.Dir, "up-"+way)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	args := append([]string{
		"up", "--device=" + r.GPU.Device, "--state-dir=" + filepath.Join(dir, "state"), "--lock-dir=" + filepath.Join(dir, "lock"),
		"--containers.label=" + tenant.Label + "=" + r.Name,
		"--web.listen-address=" + addresses[0], "--actuator.listen-address=" + addresses[1],
	}, flags...)
	if env.DockerHost != "" {
		args = append(args, "--docker.host="+env.DockerHost)
	}
	d, err := daemon.Start(ctx, dir, addresses[1], program, args...)
	if err != nil {
		return nil, fmt.Errorf("way %s: %w", way, err)
	}
	return func() (string, error) {
		err := d.Stop()
		return d.Said(), err
	}, nil
}
