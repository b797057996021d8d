package tenant

import (
	"context"
	"os"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
)

// hostFolders are lent to a container that runs a program of the host.
var hostFolders = []string{"/usr", "/lib", "/lib64", "/bin", "/etc", "/opt"}

// StartHost starts a container whose root borrows the host's programs and
// libraries, read-only, and in it the program Args, which the host has; for
// software that is too large for an image of its own, such as PyTorch. The
// folders besides are mounted at their own path. It finds NVIDIA GPUs only: the
// simulated one has its driver in a folder that is the host's here.
func (r *Runner) StartHost(ctx context.Context, s Spec, folders ...string) (*Tenant, error) {
	host := r.host
	host.Mounts = slices.DeleteFunc(slices.Clone(r.host.Mounts), func(m mount.Mount) bool {
		return slices.ContainsFunc(hostFolders, func(f string) bool { return strings.HasPrefix(m.Target, f+"/") })
	})
	for _, f := range slices.Concat(hostFolders, folders) {
		if _, err := os.Stat(f); err == nil {
			host.Mounts = append(host.Mounts, mount.Mount{Type: mount.TypeBind, Source: f, Target: f, ReadOnly: true})
		}
	}
	return r.start(ctx, s, &container.Config{
		Entrypoint: s.Args[:1], Cmd: s.Args[1:],
		Env: once(slices.Concat(r.env, s.Env, []string{"HOME=/tmp", "PATH=" + os.Getenv("PATH")})),
	}, host)
}

// once keeps the last value of each variable: which of two a program gets is up to the engine.
func once(env []string) (kept []string) {
	for i, v := range env {
		name, _, _ := strings.Cut(v, "=")
		if !slices.ContainsFunc(env[i+1:], func(later string) bool { return strings.HasPrefix(later, name+"=") }) {
			kept = append(kept, v)
		}
	}
	return kept
}

// DriverFolder is where a container of this runner finds libcuda.so.1; empty where the engine's NVIDIA
// runtime puts it among the system's libraries.
func (r *Runner) DriverFolder() string {
	if slices.Contains(r.env, "LD_LIBRARY_PATH="+driverFolder) {
		return driverFolder
	}
	return ""
}

// Stdout returns what the tenant has written to its standard output.
func (t *Tenant) Stdout(ctx context.Context) (string, error) {
	out, _, err := t.output(ctx)
	return out, err
}
