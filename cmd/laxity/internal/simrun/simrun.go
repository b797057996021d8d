// Package simrun gives containers of docker run a simulated GPU: it finds the GPU, and says
// which mounts, variables and image they need.
package simrun

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/client"

	"github.com/laxity/laxity/cmd/laxity/internal/run"
	"github.com/laxity/laxity/exporter/device/sim"
	"github.com/laxity/laxity/exporter/device/sim/cuda"
	"github.com/laxity/laxity/exporter/device/sim/tenant"
	"github.com/laxity/laxity/exporter/task"
)

// FleetSocket is where laxity sim serve makes a simulated GPU for exporters that run by hand.
const FleetSocket = "/run/laxity-sim/gpu.sock"

// Card is a simulated GPU on which a multiplication of 512² matrices has the phases, 5 s long,
// that 16384² has on an H200, and takes little memory of this machine.
func Card() sim.Options { return sim.Options{Cards: []sim.Card{{Speed: sim.H200().Scaled(512)}}} }

// GPU is a simulated GPU as docker run gives it to a container.
type GPU struct {
	Mounts []mount.Mount
	Env    []string
}

// flags are those of docker run.
func (g GPU) flags() []string {
	var out []string
	for _, m := range g.Mounts {
		text := fmt.Sprintf("type=%s,source=%s,target=%s", m.Type, m.Source, m.Target)
		if m.ReadOnly {
			text += ",readonly"
		}
		out = append(out, "--mount", text)
	}
	for _, e := range g.Env {
		out = append(out, "--env", e)
	}
	return out
}

// Find returns the simulated GPU that answers at the first of the sockets; else that of the
// Compose stack. It needs no compiler where make build made the program.
func Find(ctx context.Context, docker client.ContainerAPIClient, sockets []string) (GPU, error) {
	for _, socket := range sockets {
		d, err := sim.Dial(socket)
		if err != nil {
			continue
		}
		d.Close()
		library, err := cuda.Build("")
		return GPU{tenant.Mounts(socket, library), tenant.Env(socket)}, err
	}
	if g, err := ofStack(ctx, docker); err != nil || g.Mounts != nil {
		return g, err
	}
	return GPU{}, fmt.Errorf("no simulated GPU answers at %s, nor in a Compose stack: start one with laxity up --device=sim, or laxity sim serve, or name its socket with --socket",
		strings.Join(sockets, " or "))
}

// ofStack returns the GPU of the service simgpu of a Compose stack, by its volumes; none
// where it does not run.
func ofStack(ctx context.Context, docker client.ContainerAPIClient) (g GPU, err error) {
	list, err := docker.ContainerList(ctx, container.ListOptions{Filters: filters.NewArgs(filters.Arg("label", "com.docker.compose.service=simgpu"))})
	if err != nil {
		return g, fmt.Errorf("the Docker engine does not answer (is it running, and may you use it?): %w", err)
	}
	wanted := tenant.Mounts(FleetSocket, "/library")
	for _, c := range list {
		for _, w := range wanted {
			i := slices.IndexFunc(c.Mounts, func(m container.MountPoint) bool { return m.Type == mount.TypeVolume && m.Destination == w.Target })
			if i >= 0 {
				g.Mounts = append(g.Mounts, mount.Mount{Type: mount.TypeVolume, Source: c.Mounts[i].Name, Target: w.Target, ReadOnly: w.ReadOnly})
			}
		}
		if len(g.Mounts) == len(wanted) {
			g.Env = tenant.Env(FleetSocket)
			return g, nil
		}
		g.Mounts = nil
	}
	return g, nil
}

// program is one that needs no image of the user's.
type program struct {
	args   []string
	labels map[string]string
}

// programs are the built-in ones by name. Both are the workload of internal/workload.
var programs = map[string]program{
	// About a minute of tasks of 5 s, each a process of its own.
	"matmul": {[]string{"--n", "512", "--host-seconds", "0.5", "--runs", "12"}, nil},
	// About a minute of requests of 10 ms, ten a second.
	"server": {[]string{"--n", "64", "--kernels", "3", "--repeat", "600", "--gap", "0.1", "--resident", "--sync-each"},
		map[string]string{task.LabelRelease: string(task.ReleaseBusy)}},
}

// ErrNoWish means that nothing was asked of Laxity for the container.
var ErrNoWish = errors.New("write --deadline 9s, --gpu-memory 4GiB or a --label laxity.…: Laxity leaves containers without a label alone")

// Prepare completes a command line: the GPU, and for a built-in program its image, arguments,
// labels and name. builtIn is that name; empty for the user's own image.
func Prepare(s run.Spec, g GPU, image func() (string, error), unique string) (_ run.Spec, builtIn string, err error) {
	if len(s.Labels) == 0 {
		return s, "", ErrNoWish
	}
	if s.Image == "" {
		s.Image = "matmul"
	}
	s.Flags = append(g.flags(), s.Flags...) // the user's own come last, and win
	p, known := programs[s.Image]
	if !known {
		return s, "", nil
	}
	name, named := flag(s.Flags, "--name")
	if !named {
		name = s.Image + "-" + unique
		s.Flags = append(s.Flags, "--name", name)
	}
	if s.Image, err = image(); err != nil {
		return s, "", err
	}
	if len(s.Args) == 0 {
		s.Args = p.args
	}
	for key, value := range p.labels {
		if _, set := s.Labels[key]; !set {
			s.Labels[key] = value
		}
	}
	if !s.Detach {
		s.Flags, s.Detach = append(s.Flags, "--detach"), true
	}
	if !given(s.Flags, "--rm") && !given(s.Flags, "--restart") {
		s.Flags = append(s.Flags, "--rm")
	}
	return s, name, nil
}

// given reports whether a flag is among docker's arguments, with a value or without.
func given(flags []string, name string) bool {
	return slices.ContainsFunc(flags, func(f string) bool { return f == name || strings.HasPrefix(f, name+"=") })
}

// flag returns the value of a flag in docker's arguments.
func flag(flags []string, name string) (string, bool) {
	if i := slices.Index(flags, name); i >= 0 && i+1 < len(flags) {
		return flags[i+1], true
	}
	return "", false
}

// Image returns an image with the built-in programs, and makes it where the engine has none.
func Image(ctx context.Context, docker client.ImageAPIClient) (string, error) {
	tag, err := tenant.Tag()
	if err != nil {
		return "", err
	}
	if _, err := docker.ImageInspect(ctx, tag); err == nil {
		return tag, nil
	}
	return tag, tenant.BuildImage(ctx, docker, tag)
}

// Programs names the built-in programs.
func Programs() []string { return []string{"matmul", "server"} }
