package container

import (
	"slices"
	"strconv"
	"strings"
)

// VisibleGPUs reads NVIDIA_VISIBLE_DEVICES in an environment, as Container.GPUs says it; nil where
// it is not set. The last of several counts.
func VisibleGPUs(env []string) []string {
	var gpus []string
	for _, entry := range env {
		value, ok := strings.CutPrefix(entry, "NVIDIA_VISIBLE_DEVICES=")
		if !ok {
			continue
		}
		gpus = []string{}
		for id := range strings.SplitSeq(value, ",") {
			switch id = strings.TrimSpace(id); id {
			case "", "none", "void":
			default:
				gpus = append(gpus, strings.TrimPrefix(id, cdiGPU))
			}
		}
	}
	return OrAll(gpus)
}

const cdiGPU = "nvidia.com/gpu="

// CDIGPU returns the GPU that a CDI device names; false for another device.
func CDIGPU(device string) (gpu string, ok bool) { return strings.CutPrefix(device, cdiGPU) }

// DeviceFile returns the GPU of a device file, /dev/nvidiaN; false for another file. N is the minor
// number, which is the index on all but odd machines.
func DeviceFile(path string) (gpu string, ok bool) {
	minor, ok := strings.CutPrefix(path, "/dev/nvidia")
	if !ok {
		return "", false
	}
	_, err := strconv.ParseUint(minor, 10, 16)
	return minor, err == nil
}

// OrAll returns "all" alone if it is among them.
func OrAll(gpus []string) []string {
	if slices.Contains(gpus, "all") {
		return []string{"all"}
	}
	return gpus
}

// GivenGPUs says which GPUs a container may use, as Container.GPUs does, by the CDI devices that it
// was given, its environment and its device files. Device files count before the environment only
// where that does not name GPUs: images have NVIDIA_VISIBLE_DEVICES=all of themselves, and what the
// device plugin sets may name an instance of a card.
func GivenGPUs(cdi, env, devices []string) []string {
	var gpus []string
	for _, device := range cdi {
		if gpu, ok := CDIGPU(device); ok {
			gpus = append(gpus, gpu)
		}
	}
	if gpus != nil {
		return OrAll(gpus)
	}
	visible := VisibleGPUs(env)
	if len(visible) > 0 && (strings.HasPrefix(visible[0], "GPU-") || strings.HasPrefix(visible[0], "MIG-")) {
		return visible
	}
	for _, path := range devices {
		if gpu, ok := DeviceFile(path); ok {
			gpus = append(gpus, gpu)
		}
	}
	if gpus != nil {
		return gpus
	}
	return visible
}
