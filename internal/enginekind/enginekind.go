// Package enginekind tells Docker from Podman, which answers with Docker's API as well, and knows
// where its answers differ.
//
// It imports the Docker client, containerd/errdefs and the standard library.
package enginekind

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/client"
)

// Gone reports whether an engine's error says that a container is not there. Podman answers 500
// instead of 404 where another call removes the container during this one (libpod's ErrNoSuchCtr and
// ErrCtrRemoved; seen with 4.3).
func Gone(err error) bool {
	return err != nil && (errdefs.IsNotFound(err) || Says(err, "no such container") || Says(err, "container has already been removed"))
}

// Says reports whether an engine's error has this text, in lower case.
func Says(err error, text string) bool { return strings.Contains(strings.ToLower(err.Error()), text) }

// Podman returns the version of the engine if it is Podman, and "" for any other. It asks engines
// behind a unix socket only. Podman's answer to GET /version takes seconds, because it asks the
// package manager; that to GET /_ping names it as well.
func Podman(ctx context.Context, c *client.Client) (version string, err error) {
	if !strings.HasPrefix(c.DaemonHost(), "unix://") {
		return "", nil
	}
	resp, err := get(ctx, c, "/_ping")
	if err != nil {
		return "", err
	}
	return resp.Header.Get("Libpod-Api-Version"), resp.Body.Close()
}

// Rootless reports whether a Podman behind a unix socket runs without root, which Docker's type of
// the answer has no place for.
func Rootless(ctx context.Context, c *client.Client) (bool, error) {
	resp, err := get(ctx, c, "/info")
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	var info struct{ Rootless bool }
	return info.Rootless, json.NewDecoder(resp.Body).Decode(&info)
}

func get(ctx context.Context, c *client.Client, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+client.DummyHost+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.HTTPClient().Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask the engine at %s who it is: %w", c.DaemonHost(), err)
	}
	return resp, nil
}
