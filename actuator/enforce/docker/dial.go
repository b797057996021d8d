package docker

import (
	"context"
	"errors"
	"fmt"

	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/client"
)

// Dial makes a client of the engine at host ("" for DOCKER_HOST or the local
// socket). It does not connect yet; the API version is negotiated by the first
// call, so that an old engine will do.
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

// Engine returns the id that the Docker engine has given itself. It lives as long
// as the engine's data folder. An error where the engine in use cannot be asked.
func (e *Enforcer) Engine(ctx context.Context) (string, error) {
	asked, ok := e.o.Engine.(interface {
		Info(ctx context.Context) (system.Info, error)
	})
	if !ok {
		return "", errors.New("this engine has no name")
	}
	info, err := asked.Info(ctx)
	if err != nil {
		return "", translate(err)
	}
	if info.ID == "" {
		return "", errors.New("the engine has no id")
	}
	return info.ID, nil
}
