package sensortest

import (
	"path/filepath"
	"testing"

	"github.com/docker/docker/client"

	"github.com/laxity/laxity/exporter/container/docker/dockertest"
	"github.com/laxity/laxity/internal/cudaprobe/cudatest"
)

// host makes containers that run the program.
type host struct {
	client  *client.Client
	mounted dockertest.Spec // the library comes from the host
	copied  dockertest.Spec // the library is in the image
}

func newHost(t *testing.T) *host {
	t.Helper()
	c := dockertest.Client(t)
	built := cudatest.Build(t)
	// Where no file of this machine is: a mount must not hide one.
	const folder, copied = "/opt/driver", "/usr/local/nvidia/lib64/libcuda.so.1"
	image := dockertest.Image(t, c, []string{built.Program}, map[string]string{copied: built.Library})
	return &host{
		client: c,
		mounted: dockertest.Spec{
			Image: image, Command: []string{built.Program, filepath.Join(folder, "libcuda.so.1")},
			Binds: []string{built.Dir + ":" + folder + ":ro"},
		},
		copied: dockertest.Spec{Image: image, Command: []string{built.Program, copied}},
	}
}

func (h *host) start(t *testing.T, s dockertest.Spec) (id string, p *cudatest.Program) {
	t.Helper()
	id, stdin, stdout := dockertest.Talk(t, h.client, s)
	return id, cudatest.Attach(t, dockertest.PID(t, h.client, id), stdin, stdout)
}
