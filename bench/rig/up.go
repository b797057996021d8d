package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/tenant"
	"github.com/laxity/laxity/internal/daemon"
)

// Command is a `laxity up`.
type Command struct {
	Program  string
	Dir      string // exists
	Address  string // of the actuator
	Exporter string // its address
	Args     []string
}

// StateDir is the actuator's.
func (c Command) StateDir() string { return filepath.Join(c.Dir, "state", "actuator") }

// upDir is the folder of a way's `laxity up`.
func (r *Rig) upDir(way string) string { return filepath.Join(r.Dir, "up-"+way) }

// UpCommand is a `laxity up` for this rig's containers, with these flags besides. The state folder
// of a way stays over the runs, so that it learns as a daemon does.
func (r *Rig) UpCommand(ctx context.Context, env bench.Env, way string, flags ...string) (c Command, err error) {
	if c.Program, err = daemon.Program("laxity"); err != nil {
		return c, err
	}
	addresses, err := daemon.FreeAddresses(ctx, 2)
	if err != nil {
		return c, err
	}
	c.Dir, c.Exporter, c.Address = r.upDir(way), addresses[0], addresses[1]
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return c, err
	}
	c.Args = append([]string{
		"up", "--device=" + r.GPU.Device, "--state-dir=" + filepath.Join(c.Dir, "state"), "--lock-dir=" + filepath.Join(c.Dir, "lock"),
		"--containers.label=" + tenant.Label + "=" + r.Name,
		"--web.listen-address=" + addresses[0], "--actuator.listen-address=" + addresses[1],
	}, flags...)
	switch {
	case r.pods != nil:
		c.Args = append(c.Args, r.pods.Flags()...)
	case env.DockerHost != "":
		c.Args = append(c.Args, "--docker.host="+env.DockerHost)
	}
	return c, nil
}

// Up runs UpCommand, and returns when it is ready. stop ends it, once everybody is released, and with the
// setting verbose logs what it said.
func (r *Rig) Up(ctx context.Context, env bench.Env, way string, flags ...string) (stop func() error, err error) {
	verbose := env.Args["verbose"] != ""
	if verbose {
		flags = append(flags, "--log.level=debug")
	}
	c, err := r.UpCommand(ctx, env, way, flags...)
	if err != nil {
		return nil, err
	}
	d, err := daemon.Start(ctx, c.Dir, c.Address, c.Program, c.Args...)
	if err != nil {
		return nil, fmt.Errorf("way %s: %w", way, err)
	}
	return func() error {
		err := d.Stop()
		if verbose {
			env.Log("laxity up:\n%s", d.Said())
		}
		return err
	}, nil
}

// Decisions are what the `laxity up` of a way has decided in all runs, once it has stopped.
func (r *Rig) Decisions(way string) (all []decision.Decision, err error) {
	f, err := os.Open(filepath.Join(Command{Dir: r.upDir(way)}.StateDir(), "decisions.jsonl"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for lines := json.NewDecoder(f); ; {
		var d decision.Decision
		switch err := lines.Decode(&d); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return all, fmt.Errorf("%s: %w", f.Name(), err)
		}
		all = append(all, d)
	}
}
