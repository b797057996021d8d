package run

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/docker/docker/client"

	"github.com/laxity/laxity/internal/engine"
	"github.com/laxity/laxity/internal/enginekind"
)

// answersWithin is how long the engine may take to say what it is.
var answersWithin = 2 * time.Second

// Podman returns the command podman with what leads it to the engine of this machine, if that is
// Podman: the one that docker's option --host names, DOCKER_HOST, or the docker context in use, in
// docker's order, else the usual socket; without a docker command Podman's own. It returns nil where
// docker is to be used.
//
// The docker command works with Podman, but loses things that matter: Podman's Docker API ignores
// --gpus without an error, and its exit code of a container with --rm is 0 (seen with 4.3).
func Podman(ctx context.Context, options []string) []string {
	if _, err := exec.LookPath("podman"); err != nil {
		return nil
	}
	host := cmp.Or(Option(options, "host"), os.Getenv(client.EnvOverrideHost), engine.This.Context())
	if Option(options, "context") != "" || host == "" && os.Getenv("DOCKER_CONTEXT") != "" {
		return nil // a context whose address docker alone knows
	}
	opts := []client.Opt{client.FromEnv, client.WithAPIVersionNegotiation()}
	if host != "" {
		opts = append(opts, client.WithHost(host))
	}
	c, err := client.NewClientWithOpts(opts...)
	if err != nil {
		return nil
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	switch version, err := enginekind.Podman(ctx, c); {
	case err != nil:
		if _, missing := exec.LookPath("docker"); missing != nil && host == "" {
			return []string{"podman"}
		}
		return nil
	case version == "":
		return nil
	}
	return []string{"podman", "--url", c.DaemonHost()}
}

// Option returns the value of one of docker's global options, which are written --name=value; empty
// for none.
func Option(options []string, name string) string {
	for _, o := range options {
		if value, ok := strings.CutPrefix(o, "--"+name+"="); ok {
			return value
		}
	}
	return ""
}

// isPodman reports whether a command line is podman's.
func isPodman(command []string) bool { return filepath.Base(command[0]) == "podman" }

// gpuRequest asks the engine for one GPU. Podman gives GPUs by CDI only, and ignores --gpus.
func gpuRequest(command []string, uuid string) []string {
	if isPodman(command) {
		return []string{"--device", "nvidia.com/gpu=" + uuid}
	}
	return []string{"--gpus", "device=" + uuid}
}
