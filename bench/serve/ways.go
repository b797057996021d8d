package serve

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/laxity/laxity/bench/tenant"
	"github.com/laxity/laxity/internal/daemon"
)

// way is one that is set up.
type way struct {
	release func() error // lets go whoever is held
	end     func() error
}

func nothing() error { return nil }

// begin sets a way up.
func (m *measurement) begin(ctx context.Context, s *set) (way, error) {
	switch s.way {
	case laxity:
		release, err := m.up(ctx, s)
		return way{release, nothing}, err
	case always:
		release, err := m.up(ctx, s, "--arbitrate=always")
		return way{release, nothing}, err
	case withMPS, mpsPriority:
		err := s.mps.Start(ctx, m.Tenants, fmt.Sprintf("laxity-bench-serve-%d-%d-%s", os.Getpid(), s.run, s.way))
		return way{nothing, func() error { return errors.Join(s.remove(), s.mps.Stop()) }}, err
	default:
		return way{nothing, nothing}, nil
	}
}

// up runs `laxity up` with its default flags, and these. The state folder of a way
// stays over the runs, so that it learns as a daemon does.
func (m *measurement) up(ctx context.Context, s *set, flags ...string) (stop func() error, err error) {
	program, err := daemon.Program("laxity")
	if err != nil {
		return nil, err
	}
	addresses, err := daemon.FreeAddresses(ctx, 2)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(m.Dir, "up-"+s.way)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	args := append([]string{
		"up", "--device=" + m.GPU.Device, "--state-dir=" + filepath.Join(dir, "state"), "--lock-dir=" + filepath.Join(dir, "lock"),
		"--containers.label=" + tenant.Label + "=" + m.Name,
		"--web.listen-address=" + addresses[0], "--actuator.listen-address=" + addresses[1],
	}, flags...)
	if m.env.DockerHost != "" {
		args = append(args, "--docker.host="+m.env.DockerHost)
	}
	d, err := daemon.Start(ctx, dir, addresses[1], program, args...)
	if err != nil {
		return nil, err
	}
	return func() error {
		err := d.Stop()
		if m.how.verbose {
			m.env.Log("laxity up:\n%s", d.Said())
		}
		return err
	}, nil
}
