package tenant

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"

	observed "github.com/laxity/laxity/exporter/container"
)

// driverFolder is where a container finds the host's driver when the engine has
// no NVIDIA runtime to put it there.
const driverFolder = "/opt/nvidia-driver"

// nvidia gives a container every NVIDIA GPU of the host: by the engine's NVIDIA
// runtime where it has one, else by mounting the host's driver libraries and
// device nodes, as that runtime does.
func nvidia(runtime bool, hc *container.HostConfig, env *[]string) error {
	if runtime {
		hc.DeviceRequests = []container.DeviceRequest{{Count: -1, Capabilities: [][]string{{"gpu", "compute", "utility"}}}}
		return nil
	}
	library, err := hostLibcuda()
	if err != nil {
		return err
	}
	hc.Mounts = append(hc.Mounts, mount.Mount{
		Type: mount.TypeBind, Source: filepath.Dir(library), Target: driverFolder, ReadOnly: true,
	})
	*env = append(*env, "LD_LIBRARY_PATH="+driverFolder)
	var nodes []string
	for _, pattern := range []string{"/dev/nvidia[0-9]*", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"} {
		found, _ := filepath.Glob(pattern) // the pattern is well-formed
		nodes = append(nodes, found...)
	}
	if !slices.Contains(nodes, "/dev/nvidiactl") {
		return errors.New("no /dev/nvidiactl on this machine: load the NVIDIA driver, or use --device=sim")
	}
	for _, n := range nodes {
		hc.Devices = append(hc.Devices, container.DeviceMapping{PathOnHost: n, PathInContainer: n, CgroupPermissions: "rwm"})
	}
	return nil
}

// give leaves a container these of the GPUs that host has, by the same means. The simulated ones are given by the
// variable that the stand-in library reads.
func give(gpus []int, host *container.HostConfig, env *[]string) {
	ids := []string{}
	for _, i := range gpus {
		ids = append(ids, strconv.Itoa(i))
	}
	visible := strings.Join(ids, ",")
	if visible == "" {
		visible = "none"
	}
	*env = append(slices.Clone(*env), "NVIDIA_VISIBLE_DEVICES="+visible)
	if requests := host.DeviceRequests; len(requests) > 0 {
		host.DeviceRequests = nil
		if len(ids) > 0 {
			host.DeviceRequests = []container.DeviceRequest{{DeviceIDs: ids, Capabilities: requests[0].Capabilities}}
		}
	}
	host.Devices = slices.DeleteFunc(slices.Clone(host.Devices), func(d container.DeviceMapping) bool {
		gpu, ok := observed.DeviceFile(d.PathOnHost)
		return ok && !slices.Contains(ids, gpu)
	})
}

// hostLibcuda returns the real path of the host's libcuda.so.1.
func hostLibcuda() (string, error) {
	folders := strings.Split(os.Getenv("LD_LIBRARY_PATH"), ":")
	folders = append(folders,
		"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib",
		"/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/run/opengl-driver/lib", "/usr/lib/wsl/lib")
	if conf, err := filepath.Glob("/etc/ld.so.conf.d/*.conf"); err == nil {
		for _, c := range conf {
			text, err := os.ReadFile(c)
			if err != nil {
				continue
			}
			for line := range strings.Lines(string(text)) {
				if line = strings.TrimSpace(line); strings.HasPrefix(line, "/") {
					folders = append(folders, line)
				}
			}
		}
	}
	for _, f := range folders {
		if f == "" {
			continue
		}
		if path, err := filepath.EvalSymlinks(filepath.Join(f, "libcuda.so.1")); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("no libcuda.so.1 on this machine: install the NVIDIA driver, or use --device=sim")
}
