package docker

import (
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	api "github.com/docker/docker/api/types/container"

	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/task"
)

// errPermission is what the client's dial error wraps when the socket is there
// and may not be opened.
var errPermission = fs.ErrPermission

func fromInspect(raw api.InspectResponse) container.Container {
	var c container.Container
	if base := raw.ContainerJSONBase; base != nil {
		c.ID = base.ID
		c.Name = strings.TrimPrefix(base.Name, "/")
		c.Image = base.Image // its digest
		c.Command = strings.Join(append([]string{base.Path}, base.Args...), " ")
		if s := base.State; s != nil && s.Running && !s.Restarting {
			c.PID = s.Pid
			c.Paused = s.Paused
			c.Started, _ = time.Parse(time.RFC3339Nano, s.StartedAt) // zero: not known
		}
	}
	if raw.Config != nil {
		c.Image = task.ImageName(raw.Config.Image)
		c.Labels = raw.Config.Labels
	}
	c.GPUs = givenGPUs(raw)
	return c
}

// fromSummary is what the engine's list says: all but PID, start and GPUs.
func fromSummary(s api.Summary) container.Container {
	c := container.Container{
		ID: s.ID, Image: task.ImageName(s.Image), Command: s.Command, Labels: s.Labels, Paused: s.State == api.StatePaused, Partial: true,
	}
	if len(s.Names) > 0 {
		c.Name = strings.TrimPrefix(s.Names[0], "/")
	}
	return c
}

// givenGPUs says which GPUs the container may use, nil when that is not known.
// What was asked of Docker counts before what was asked of NVIDIA's runtime by
// the environment, and that before bare device files; the environment alone,
// without the runtime, is the last hint.
func givenGPUs(raw api.InspectResponse) []string {
	var host api.HostConfig
	if raw.ContainerJSONBase != nil && raw.HostConfig != nil {
		host = *raw.HostConfig
	}
	if gpus := requestedGPUs(host.DeviceRequests); gpus != nil {
		return gpus
	}
	var visible []string
	if raw.Config != nil {
		visible = container.VisibleGPUs(raw.Config.Env)
	}
	if visible != nil && strings.HasPrefix(host.Runtime, "nvidia") {
		return visible
	}
	if gpus := deviceFiles(host.Devices); gpus != nil {
		return gpus
	}
	return visible
}

func requestedGPUs(requests []api.DeviceRequest) []string {
	var gpus []string
	for _, r := range requests {
		isGPU := r.Driver == "nvidia" || r.Driver == "" && slices.ContainsFunc(r.Capabilities, func(all []string) bool {
			return slices.Contains(all, "gpu")
		})
		for _, id := range r.DeviceIDs {
			name, isCDI := container.CDIGPU(id)
			switch {
			case isCDI:
				gpus = append(gpus, name)
			case isGPU:
				gpus = append(gpus, id)
			}
		}
		switch {
		case !isGPU || len(r.DeviceIDs) > 0:
		case r.Count < 0:
			gpus = append(gpus, "all")
		default: // the engine gives the first ones
			for i := range r.Count {
				gpus = append(gpus, strconv.Itoa(i))
			}
		}
	}
	return container.OrAll(gpus)
}

func deviceFiles(devices []api.DeviceMapping) []string {
	var gpus []string
	for _, d := range devices {
		if gpu, ok := container.DeviceFile(d.PathOnHost); ok {
			gpus = append(gpus, gpu)
		}
	}
	return gpus
}
