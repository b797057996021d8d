package docker

import (
	"slices"
	"testing"

	api "github.com/docker/docker/api/types/container"
)

func TestGivenGPUs(t *testing.T) {
	gpu := [][]string{{"gpu"}}
	tests := []struct {
		name string
		host api.HostConfig
		env  []string
		want []string // nil: not known
	}{
		{name: "nothing said"},
		{name: "--gpus all", host: requests(api.DeviceRequest{Count: -1, Capabilities: gpu}), want: []string{"all"}},
		{name: "--gpus 2", host: requests(api.DeviceRequest{Count: 2, Capabilities: gpu}), want: []string{"0", "1"}},
		{name: "--gpus device", host: requests(api.DeviceRequest{DeviceIDs: []string{"GPU-1", "3"}, Capabilities: gpu}), want: []string{"GPU-1", "3"}},
		{name: "by driver", host: requests(api.DeviceRequest{Driver: "nvidia", DeviceIDs: []string{"1"}}), want: []string{"1"}},
		{name: "CDI", host: requests(api.DeviceRequest{Driver: "cdi", DeviceIDs: []string{"nvidia.com/gpu=0", "vendor.com/nic=1"}}), want: []string{"0"}},
		{name: "CDI all", host: requests(api.DeviceRequest{Driver: "cdi", DeviceIDs: []string{"nvidia.com/gpu=all"}}), want: []string{"all"}},
		{name: "another vendor", host: requests(api.DeviceRequest{Driver: "other", Count: -1, Capabilities: gpu})},
		{name: "a request counts before the environment", host: requests(api.DeviceRequest{DeviceIDs: []string{"1"}, Capabilities: gpu}), env: []string{"NVIDIA_VISIBLE_DEVICES=all"}, want: []string{"1"}},
		{name: "runtime", host: api.HostConfig{Runtime: "nvidia"}, env: []string{"NVIDIA_VISIBLE_DEVICES=0,GPU-1"}, want: []string{"0", "GPU-1"}},
		{name: "MIG", host: api.HostConfig{Runtime: "nvidia"}, env: []string{"NVIDIA_VISIBLE_DEVICES=0:1,MIG-2"}, want: []string{"0:1", "MIG-2"}},
		{name: "void", env: []string{"NVIDIA_VISIBLE_DEVICES=void"}, want: []string{}},
		{name: "empty", env: []string{"NVIDIA_VISIBLE_DEVICES="}, want: []string{}},
		{name: "the last one counts", env: []string{"NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_VISIBLE_DEVICES=1"}, want: []string{"1"}},
		{name: "device files", host: files("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia1"), want: []string{"1"}},
		{name: "device files count before an image's environment", host: files("/dev/nvidia1"), env: []string{"NVIDIA_VISIBLE_DEVICES=all"}, want: []string{"1"}},
		{name: "environment of the runtime counts before device files", host: api.HostConfig{Runtime: "nvidia", Resources: files("/dev/nvidia1").Resources}, env: []string{"NVIDIA_VISIBLE_DEVICES=0"}, want: []string{"0"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := givenGPUs(api.InspectResponse{
				ContainerJSONBase: &api.ContainerJSONBase{HostConfig: &tt.host},
				Config:            &api.Config{Env: tt.env},
			})
			if !slices.Equal(got, tt.want) || (got == nil) != (tt.want == nil) {
				t.Errorf("got %#v, want %#v", got, tt.want)
			}
		})
	}
}

func requests(r ...api.DeviceRequest) api.HostConfig {
	return api.HostConfig{Resources: api.Resources{DeviceRequests: r}}
}

func files(paths ...string) api.HostConfig {
	var host api.HostConfig
	for _, path := range paths {
		host.Devices = append(host.Devices, api.DeviceMapping{PathOnHost: path})
	}
	return host
}
