//go:build !linux || !cgo

package nvml

import (
	"fmt"

	"github.com/laxity/laxity/exporter/device"
)

// Open returns device.ErrUnavailable: this program was built without NVML.
func Open() (device.Device, error) {
	return nil, fmt.Errorf("%w: this program was built without NVML; build it on Linux with CGO_ENABLED=1 and a C compiler",
		device.ErrUnavailable)
}
