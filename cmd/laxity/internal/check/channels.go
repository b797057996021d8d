package check

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/internal/rm/selftest"
)

// controlDevice is that of NVIDIA's resource manager.
const controlDevice = "/dev/nvidiactl"

// instead is what happens where channels cannot be controlled.
const instead = "containers that wait are paused instead, host side included: a running kernel cannot be stopped, and GPU time is not divided by share"

// channelsFacts are what is known of control of channels.
type channelsFacts struct {
	spec    string
	gpus    []device.GPU
	control error // of the resource manager's device
	cards   []cardFacts
}

// cardFacts are one card's.
type cardFacts struct {
	device.GPU
	tested bool
	result selftest.Result
	err    error // of reading what earlier self-tests showed
}

// gatherChannels reads the results of earlier self-tests. It tests nothing: that computes on
// the card.
func gatherChannels(d deviceFacts, stateDirs []string) channelsFacts {
	f := channelsFacts{spec: d.spec, gpus: d.gpus}
	if d.spec == "sim" || !d.nvidia() {
		return f
	}
	_, f.control = os.Stat(controlDevice)
	for _, gpu := range d.gpus {
		c := cardFacts{GPU: gpu}
		for _, dir := range stateDirs {
			r, found, err := selftest.Recall(filepath.Join(dir, "channels.json"), gpu.Driver, gpu.UUID)
			c.err = errors.Join(c.err, err)
			if found && r.At.After(c.result.At) {
				c.tested, c.result = true, r
			}
		}
		f.cards = append(f.cards, c)
	}
	return f
}

func (f channelsFacts) judge() []Finding {
	out := findings{area: "Slices and channels"}
	switch {
	case strings.HasPrefix(f.spec, "sim"):
		out.ok("simulated GPU", "its time can be divided by slices, and tasks taken off it and put on again")
		judgeMPS(&out, f.gpus)
		return out.list
	case len(f.cards) == 0:
		out.add(Skip, "here", "there is no NVIDIA GPU here", "", "")
		return out.list
	case f.control != nil:
		out.add(Warn, "here", f.control.Error(), instead, "in a container give it the device "+controlDevice)
		return out.list
	}
	for _, c := range f.cards {
		c.judge(&out)
	}
	judgeMPS(&out, f.gpus)
	return out.list
}

// judgeMPS says which GPUs have clients of an MPS server: nothing can order those.
func judgeMPS(out *findings, gpus []device.GPU) {
	for _, g := range gpus {
		n := 0
		for _, p := range g.Processes {
			if p.MPS {
				n++
			}
		}
		if n > 0 {
			out.add(Warn, fmt.Sprintf("MPS on GPU %d", g.Index), fmt.Sprintf("processes that compute through an MPS server: %d", n),
				"their containers are observed and left as they are, whatever their labels ask for: the channels belong to the server, and are all its clients'",
				"start programs that are to be ordered without MPS: unset CUDA_MPS_PIPE_DIRECTORY")
		}
	}
}

func (c cardFacts) judge(out *findings) {
	name, on := fmt.Sprintf("GPU %d", c.Index), fmt.Sprintf("%s, driver %s", c.Name, c.Driver)
	switch r := c.result; {
	case c.tested && r.Switch && r.Slices:
		out.ok(name, fmt.Sprintf("%s: controllable; the self-test of %s took a kernel off in %s and on in %s", on, r.At.Format(time.DateOnly), millis(r.Off), millis(r.On)))
	case c.tested:
		out.add(Warn, name, fmt.Sprintf("%s: the self-test of %s failed: %s", on, r.At.Format(time.DateOnly), r.Reason), instead,
			"it is tested anew when the driver changes")
	case errors.Is(c.err, fs.ErrPermission):
		out.add(Skip, name, fmt.Sprintf("%s: the results of self-tests cannot be read: %v", on, c.err), "", "sudo laxity check")
	default:
		out.add(OK, name, on+": not tested yet", "laxity up and laxity-actuator test it when they start (0.1 s of the card, 2 GiB of free memory), and remember the result; where it fails "+instead, "")
	}
}

func millis(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

// holding says how a running actuator holds containers, and what it does not do for want of
// what.
func holding(out *findings, s state.State) {
	switch {
	case s.Hold == config.HoldChannels:
		how := "by time slices, and channels off and on"
		if s.ChannelsProven != "" {
			how += ", because " + s.ChannelsProven
		}
		if s.SeveralGPUs != "" {
			how += "; containers on several GPUs: --several-gpus=" + string(s.SeveralGPUs)
		}
		out.ok("holding", how)
	case s.Hold == "": // an older actuator, which does not report it
	case s.NoChannels == "":
		out.add(OK, "holding", "by pauses, as --hold or --policy has it", "", "")
	default:
		out.add(Warn, "holding", "by pauses, because channels cannot be controlled: "+s.NoChannels,
			"a running kernel cannot be stopped, and GPU time is not divided by share", "see Slices and channels above")
	}
}
