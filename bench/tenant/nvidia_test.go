package tenant

import (
	"slices"
	"testing"

	"github.com/docker/docker/api/types/container"
)

// A container gets its GPUs by the means by which all would get all, and what all share besides.
func TestGive(t *testing.T) {
	all := func() *container.HostConfig {
		h := &container.HostConfig{}
		for _, path := range []string{"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl"} {
			h.Devices = append(h.Devices, container.DeviceMapping{PathOnHost: path})
		}
		return h
	}
	for name, c := range map[string]struct {
		gpus    []int
		devices []string
		visible string
	}{
		"one":  {[]int{1}, []string{"/dev/nvidia1", "/dev/nvidiactl"}, "NVIDIA_VISIBLE_DEVICES=1"},
		"two":  {[]int{0, 1}, []string{"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl"}, "NVIDIA_VISIBLE_DEVICES=0,1"},
		"none": {[]int{}, []string{"/dev/nvidiactl"}, "NVIDIA_VISIBLE_DEVICES=none"},
	} {
		host, env := all(), []string{"A=1"}
		give(c.gpus, host, &env)
		var devices []string
		for _, d := range host.Devices {
			devices = append(devices, d.PathOnHost)
		}
		if !slices.Equal(devices, c.devices) || !slices.Equal(env, []string{"A=1", c.visible}) {
			t.Errorf("%s: %q, %q", name, devices, env)
		}
		runtime := &container.HostConfig{}
		runtime.DeviceRequests = []container.DeviceRequest{{Count: -1, Capabilities: [][]string{{"gpu"}}}}
		give(c.gpus, runtime, &env)
		asked := 0
		for _, r := range runtime.DeviceRequests {
			asked += len(r.DeviceIDs)
			if r.Count != 0 || r.Capabilities[0][0] != "gpu" {
				t.Errorf("%s: %+v", name, r)
			}
		}
		if asked != len(c.gpus) {
			t.Errorf("%s: the runtime is asked for %+v", name, runtime.DeviceRequests)
		}
	}
}
