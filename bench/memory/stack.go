// Package memory measures what allocation of GPU memory does: P5's deadlock, and
// more tasks than the card has memory for.
package memory

import (
	"context"
	"fmt"
	"os"

	"github.com/laxity/laxity/bench"
	benchrig "github.com/laxity/laxity/bench/rig"
	"github.com/laxity/laxity/bench/tenant"
)

// Ways that are compared.
const (
	without  = "default"
	laxity   = "laxity"
	oneByOne = "one"
)

// rig is what all runs of an experiment use.
type rig struct {
	*benchrig.Rig
	env  bench.Env
	made int
}

func newRig(ctx context.Context, env bench.Env, name string, gpus int) (*rig, error) {
	r, err := benchrig.Open(ctx, env, name, gpus)
	if err != nil {
		return nil, err
	}
	return &rig{Rig: r, env: env}, nil
}

// create makes a container that is to be started; args are the workload's.
func (r *rig) create(ctx context.Context, labels map[string]string, args ...string) (*tenant.Tenant, error) {
	r.made++
	return r.Tenants.Create(ctx, tenant.Spec{Name: fmt.Sprintf("laxity-bench-memory-%d-%d", os.Getpid(), r.made), Labels: labels, Args: args})
}
