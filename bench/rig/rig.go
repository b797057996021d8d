// Package rig holds what every experiment with containers needs: a folder, the GPUs, and a Runner of
// containers that use them.
package rig

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/pods"
	"github.com/laxity/laxity/bench/tenant"
	"github.com/laxity/laxity/internal/engine"
)

// Rig is one experiment's.
type Rig struct {
	Dir     string // goes with the rig
	GPU     *bench.GPU
	Tenants *tenant.Runner
	Name    string // the runner's: containers carry it as their label tenant.Label

	pods *pods.Engine // nil: Docker
}

// Engine is the setting of what runs the containers of an experiment.
var Engine = bench.Setting{Name: "engine", Means: "docker (this machine's), or containerd (one of its own, each container in a pod of its own); docker"}

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
	o := tenant.Options{DockerHost: env.DockerHost, Socket: r.GPU.Socket, Name: r.Name}
	switch kind := env.Args[Engine.Name]; kind {
	case "", engine.Docker:
	case engine.Containerd:
		if r.pods, err = pods.Open(ctx); err != nil {
			return nil, err
		}
		o.Engine = pods.Tenants{Engine: r.pods}
	default:
		return nil, fmt.Errorf("--set engine=%s: write %s or %s", kind, engine.Docker, engine.Containerd)
	}
	r.Tenants, err = tenant.New(ctx, o)
	return r, err
}

// choice is the engine as exporter and actuator choose it.
func (r *Rig) choice() engine.Choice {
	if r.pods == nil {
		return engine.Choice{}
	}
	return r.pods.Choice()
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
