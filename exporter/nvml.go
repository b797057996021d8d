package exporter

import (
	"fmt"

	"github.com/laxity/laxity/exporter/device"
)

func openNVML() (device.Device, error) {
	return nil, fmt.Errorf("NVML: %w", device.ErrUnavailable)
}
