package docker

import (
	"fmt"

	"github.com/docker/docker/client"
)

// Dial makes a client of the engine at host ("" for DOCKER_HOST or the local socket). It does not
// connect yet. The first call negotiates the API version, so older engines work.
func Dial(host string) (*client.Client, error) {
	opts := []client.Opt{client.FromEnv, client.WithAPIVersionNegotiation()}
	if host != "" {
		opts = append(opts, client.WithHost(host))
	}
	c, err := client.NewClientWithOpts(opts...)
	if err != nil {
		return nil, fmt.Errorf("docker client (check --docker.host and DOCKER_HOST): %w", err)
	}
	return c, nil
}
