package tenant

import (
	"context"
	"errors"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
)

var imageRemoval = image.RemoveOptions{Force: true, PruneChildren: true}

// removeAll removes every container of this runner, by its label.
func (r *Runner) removeAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cleanup)
	defer cancel()
	list, err := r.docker.ContainerList(ctx, container.ListOptions{
		All: true, Filters: filters.NewArgs(filters.Arg("label", Label+"="+r.name)),
	})
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range list {
		errs = append(errs, (&Tenant{ID: c.ID, runner: r}).Remove())
	}
	return errors.Join(errs...)
}
