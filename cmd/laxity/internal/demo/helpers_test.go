package demo

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"

	"github.com/laxity/laxity/actuator/actuatortest"
)

func TestMain(m *testing.M) {
	seenWithin = time.Minute // however busy this machine is
	actuatortest.Main(m, nil)
}

// leftovers lists the containers and images of this process's demo.
func leftovers(ctx context.Context, docker *client.Client) ([]string, error) {
	var left []string
	all, err := docker.ContainerList(ctx, container.ListOptions{All: true})
	if err != nil {
		return nil, err
	}
	prefix := fmt.Sprintf("/laxity-demo-%d-", os.Getpid())
	for _, c := range all {
		if strings.HasPrefix(c.Names[0], prefix) {
			left = append(left, c.Names[0])
		}
	}
	image := fmt.Sprintf("laxity-tenant:demo-%d", os.Getpid())
	if _, err := docker.ImageInspect(ctx, image); err == nil {
		left = append(left, image)
	}
	return left, nil
}

// until calls then, once, when it has been written text.
type until struct {
	strings.Builder
	text string
	then func()
}

func (u *until) Write(p []byte) (int, error) {
	n, err := u.Builder.Write(p)
	if u.then != nil && strings.Contains(u.String(), u.text) {
		u.then()
		u.then = nil
	}
	return n, err
}
