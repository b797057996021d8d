package ctrd

import (
	"context"
	"fmt"

	tasks "github.com/containerd/containerd/api/services/tasks/v1"
	types "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs/pkg/errgrpc"
)

// Task is a container's processes, as containerd takes them to be.
type Task struct {
	PID int // the first process, in containerd's PID namespace
	// Runs is false before it is started and after it ended; true while Paused, and where its shim
	// does not answer. PID is 0 then.
	Runs, Paused bool
	// Pausing says that its shim carries out a pause, which may fail.
	Pausing bool
}

// Tasks returns those of a namespace, by the id of their container. One whose shim does not answer
// may be missing.
func (c *Client) Tasks(ctx context.Context, namespace string) (map[string]Task, error) {
	listed, err := c.client.TaskService().List(in(ctx, namespace), &tasks.ListTasksRequest{})
	if err != nil {
		return nil, fmt.Errorf("list tasks of namespace %s: %w", namespace, errgrpc.ToNative(err))
	}
	out := make(map[string]Task, len(listed.GetTasks()))
	for _, t := range listed.GetTasks() {
		id := t.GetContainerID()
		if id == "" { // containerd 1 has it there
			id = t.GetID()
		}
		out[id] = taskOf(t)
	}
	return out, nil
}

// Task returns that of one container. The error wraps errdefs.ErrNotFound where there is none.
func (c *Client) Task(ctx context.Context, namespace, id string) (Task, error) {
	got, err := c.client.TaskService().Get(in(ctx, namespace), &tasks.GetRequest{ContainerID: id})
	if err != nil {
		return Task{}, fmt.Errorf("task of container %s: %w", id, errgrpc.ToNative(err))
	}
	return taskOf(got.GetProcess()), nil
}

func taskOf(p *types.Process) Task {
	t := Task{PID: int(p.GetPid())}
	switch p.GetStatus() {
	case types.Status_CREATED, types.Status_STOPPED:
	case types.Status_PAUSING:
		t.Runs, t.Pausing = true, true
	case types.Status_PAUSED:
		t.Runs, t.Paused = true, true
	default:
		t.Runs = true
	}
	return t
}
