// Package channeldriver opens what controls channels on this machine's GPUs, for the
// programs: a simulated GPU's resource manager, or the real one.
package channeldriver

import (
	"strings"

	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/exporter/device/sim/simrm"
)

// Open returns the driver of a device (as in `laxity up --device`); nil where channels cannot
// be controlled. It calls nobody yet.
func Open(device string) channels.Driver {
	if socket, ok := strings.CutPrefix(device, "sim:"); ok {
		return simrm.New(socket)
	}
	return nil
}
