package docker

import (
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	api "github.com/docker/docker/api/types/container"

	"github.com/laxity/laxity/exporter/container"
)

// errPermission is what the client's dial error wraps when the socket is there
// and may not be opened.
var errPermission = fs.ErrPermission

func fromInspect(raw api.InspectResponse) container.Container {
	var c container.Container
	if base := raw.ContainerJSONBase; base != nil {
		c.ID = base.ID
		c.Name = strings.TrimPrefix(base.Name, "/")
		c.Image = base.Image
		c.Command = strings.Join(append([]string{base.Path}, base.Args...), " ")
		if s := base.State; s != nil && s.Running && !s.Restarting {
			c.PID = s.Pid
			c.Paused = s.Paused
			c.Started, _ = time.Parse(time.RFC3339Nano, s.StartedAt) // zero: not known
		}
	}
	if raw.Config != nil {
		c.Image = raw.Config.Image
		c.Labels = raw.Config.Labels
	}
	c.GPUs = givenGPUs(raw)
	return c
}

// fromSummary is what the engine's list says: all but PID, start and GPUs.
func fromSummary(s api.Summary) container.Container {
	c := container.Container{ID: s.ID, Image: s.Image, Command: s.Command, Labels: s.Labels, Paused: s.State == api.StatePaused}
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
	visible := visibleGPUs(raw.Config)
	if visible != nil && strings.HasPrefix(host.Runtime, "nvidia") {
		return visible
	}
	if gpus := deviceFiles(host.Devices); gpus != nil {
		return gpus
	}
	return visible
}

func requestedGPUs(requests []api.DeviceRequest) []string {
	const cdi = "nvidia.com/gpu="
	var gpus []string
	for _, r := range requests {
		isGPU := r.Driver == "nvidia" || r.Driver == "" && slices.ContainsFunc(r.Capabilities, func(all []string) bool {
			return slices.Contains(all, "gpu")
		})
		for _, id := range r.DeviceIDs {
			name, isCDI := strings.CutPrefix(id, cdi)
			if isGPU || isCDI {
				gpus = append(gpus, name)
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
	return orAll(gpus)
}

// visibleGPUs reads NVIDIA_VISIBLE_DEVICES; the last of several counts.
func visibleGPUs(config *api.Config) []string {
	if config == nil {
		return nil
	}
	var gpus []string
	for _, env := range config.Env {
		value, ok := strings.CutPrefix(env, "NVIDIA_VISIBLE_DEVICES=")
		if !ok {
			continue
		}
		gpus = []string{}
		for id := range strings.SplitSeq(value, ",") {
			switch id = strings.TrimSpace(id); id {
			case "", "none", "void":
			default:
				gpus = append(gpus, strings.TrimPrefix(id, "nvidia.com/gpu="))
			}
		}
	}
	return orAll(gpus)
}

// deviceFiles reads --device /dev/nvidiaN. N is the minor number, which is the
// index on all but odd machines.
func deviceFiles(devices []api.DeviceMapping) []string {
	var gpus []string
	for _, d := range devices {
		minor, ok := strings.CutPrefix(d.PathOnHost, "/dev/nvidia")
		if _, err := strconv.ParseUint(minor, 10, 16); ok && err == nil {
			gpus = append(gpus, minor)
		}
	}
	return gpus
}

func orAll(gpus []string) []string {
	if slices.Contains(gpus, "all") {
		return []string{"all"}
	}
	return gpus
}
