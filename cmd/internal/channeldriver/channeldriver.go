// Package channeldriver opens the driver that controls channels on this machine's GPUs: a simulated
// GPU's resource manager, or the real one.
package channeldriver

import (
	"os"
	"strings"

	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/exporter/device/sim/simrm"
	"github.com/laxity/laxity/internal/rm"
)

// control is the resource manager's device.
const control = "/dev/nvidiactl"

// Open returns the driver of a device (as in `laxity up --device`) to undo what is on record; nil
// if that is impossible. It makes no call yet.
func Open(device string) channels.Driver {
	if socket, ok := strings.CutPrefix(device, "sim:"); ok {
		return simrm.New(socket)
	}
	if _, err := os.Stat(control); err != nil || device == "sim" {
		return nil
	}
	kernel := rm.System()
	var proven []string // the maker of the record has shown it
	if version, err := kernel.Driver(); err == nil {
		proven = append(proven, version)
	}
	return rm.New(kernel, rm.Options{Proven: proven})
}
