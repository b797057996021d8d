package simrun

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"
	"github.com/docker/docker/pkg/stdcopy"
)

// exitUsage is the exit status of a built-in program for wrong arguments.
const exitUsage = 2

// ErrUsage means that a built-in program refuses its arguments.
var ErrUsage = errors.New("wrong arguments")

// AsksUsage reports whether the user asks a built-in program for its help.
func AsksUsage(image string, args []string) bool {
	_, builtIn := programs[image]
	return builtIn && slices.Contains(args, "--help")
}

// Usage returns a built-in program's help, printed by the program itself after it has read args.
// It runs in a container of its own without a GPU, so that nothing is lost with one in the
// background. The error wraps ErrUsage, with what the program says, if the program refuses args.
func Usage(ctx context.Context, docker client.ContainerAPIClient, image string, args []string) (_ string, err error) {
	made, err := docker.ContainerCreate(ctx, &container.Config{Image: image, Cmd: slices.Concat([]string{"--help"}, args)},
		&container.HostConfig{NetworkMode: container.NetworkMode("none")}, nil, nil, "")
	if err != nil {
		return "", fmt.Errorf("check the arguments: %w", err)
	}
	defer func() {
		err = errors.Join(err, docker.ContainerRemove(context.WithoutCancel(ctx), made.ID, container.RemoveOptions{Force: true}))
	}()
	status, stdout, stderr, err := output(ctx, docker, made.ID)
	switch {
	case err != nil:
		return "", fmt.Errorf("check the arguments: %w", err)
	case status == 0:
		return stdout.String(), nil
	case status == exitUsage:
		said, _, _ := strings.Cut(stderr.String(), "\n") // the next line names the program's own --help
		return "", fmt.Errorf("%w: %s", ErrUsage, strings.TrimPrefix(said, "matmul: "))
	default:
		return "", fmt.Errorf("check the arguments: the program ended with status %d: %s", status, bytes.TrimSpace(stderr.Bytes()))
	}
}

// output starts a container, and returns how it ended and what it printed.
func output(ctx context.Context, docker client.ContainerAPIClient, id string) (status int64, stdout, stderr bytes.Buffer, err error) {
	ended, failed := docker.ContainerWait(ctx, id, container.WaitConditionNextExit)
	if err := docker.ContainerStart(ctx, id, container.StartOptions{}); err != nil {
		return 0, stdout, stderr, err
	}
	select {
	case end := <-ended:
		status = end.StatusCode
	case err := <-failed:
		return 0, stdout, stderr, err
	}
	logs, err := docker.ContainerLogs(ctx, id, container.LogsOptions{ShowStdout: true, ShowStderr: true})
	if err != nil {
		return 0, stdout, stderr, err
	}
	defer logs.Close()
	_, err = stdcopy.StdCopy(&stdout, &stderr, logs)
	return status, stdout, stderr, err
}
