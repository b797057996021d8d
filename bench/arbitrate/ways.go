package arbitrate

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	nvidia "github.com/laxity/laxity/bench/mps"
	"github.com/laxity/laxity/bench/tenant"
)

// prepare sets a way up: what its containers need besides, and how to end it.
func (m *measurement) prepare(ctx context.Context, s set, way string) (tenant.Spec, func() error, error) {
	switch way {
	case timeSliced, oneByOne:
		return tenant.Spec{}, func() error { return nil }, nil
	case mps:
		return m.startMPS(ctx)
	default:
		stop, err := m.Up(ctx, m.env, way, m.flags(s, way)...)
		return tenant.Spec{}, stop, err
	}
}

func (m *measurement) startMPS(ctx context.Context) (tenant.Spec, func() error, error) {
	service, err := nvidia.New(filepath.Join(m.Dir, "mps"))
	if err != nil {
		return tenant.Spec{}, nil, err
	}
	err = service.Start(ctx, m.Tenants, fmt.Sprintf("laxity-bench-arbitrate-%d-mps", os.Getpid()))
	return service.Spec(), service.Stop, err
}

// flags of `laxity up` for a way.
func (m *measurement) flags(s set, way string) []string {
	policy, hold, share := way, m.how.hold, m.how.share
	switch way {
	case p3:
		hold, share = "pause", ""
	case laxity:
		policy = m.how.policy
	}
	if way == laxity && s.asShipped {
		policy, share = "", ""
	}
	flags := []string{"--hold=" + hold}
	if !s.resumed || way != laxity {
		flags = append(flags, "--arbitrate=always")
	}
	for name, value := range map[string]string{"policy": policy, "share": share} {
		if value != "" {
			flags = append(flags, "--"+name+"="+value)
		}
	}
	return flags
}
