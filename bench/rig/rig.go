// Package rig holds what every experiment with containers needs: a folder, the GPUs, and a Runner of
// containers that use them.
package rig

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/tenant"
)

// Rig is one experiment's.
type Rig struct {
	Dir     string // goes with the rig
	GPU     *bench.GPU
	Tenants *tenant.Runner
	Name    string // the runner's: containers carry it as their label tenant.Label
}

// Open opens what env names; gpus is the number of simulated GPUs. The containers'
// label tells this process's experiment of that name from others.
func Open(ctx context.Context, env bench.Env, name string, gpus int) (_ *Rig, err error) {
	r := &Rig{Name: fmt.Sprintf("%s-%d", name, os.Getpid())}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	if r.Dir, err = os.MkdirTemp("", "laxity-bench-"); err != nil {
		return nil, err
	}
	if r.GPU, err = env.OpenGPU(ctx, r.Dir, gpus); err != nil {
		return nil, err
	}
	r.Tenants, err = tenant.New(ctx, tenant.Options{DockerHost: env.DockerHost, Socket: r.GPU.Socket, Name: r.Name})
	return r, err
}

// Close removes the containers that are left, and all the rest.
func (r *Rig) Close() error {
	var errs []error
	if r.Tenants != nil {
		errs = append(errs, r.Tenants.Close())
	}
	if r.GPU != nil {
		errs = append(errs, r.GPU.Close())
	}
	if r.Dir != "" {
		errs = append(errs, os.RemoveAll(r.Dir))
	}
	return errors.Join(errs...)
}
