package check

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/laxity/laxity/exporter"
	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/internal/rm"
)

// deviceFacts are what the GPUs' driver says.
type deviceFacts struct {
	spec string
	err  error // of opening or reading it
	gpus []device.GPU
	took time.Duration // of one reading
	// untraced says, for each real card, why its trace of context switches cannot be read; nil: it
	// can.
	untraced map[string]error
}

func gatherDevice(ctx context.Context, spec string) deviceFacts {
	f := deviceFacts{spec: spec}
	if spec == "sim" {
		return f
	}
	// A driver that hangs is one of the things to be told, and also hangs who opens it.
	timed := device.Opening(func() (device.Source[device.Reading], error) { return exporter.OpenDevice(spec) }, 10*time.Second)
	defer timed.Close()
	if f.err = timed.Open(); f.err != nil {
		return f
	}
	began := time.Now()
	r, err := timed.Read(ctx)
	f.gpus, f.err, f.took = r.GPUs, err, time.Since(began)
	if f.nvidia() {
		f.untraced = traces(f.gpus)
	}
	return f
}

// traces has the trace of each card on for a moment: some vGPUs refuse only that.
func traces(gpus []device.GPU) map[string]error {
	untraced := map[string]error{}
	for _, g := range gpus {
		if g.Parent != "" {
			continue
		}
		t, err := rm.New(rm.System(), rm.Options{}).OpenTrace(g.UUID)
		if err == nil {
			if err = t.Start(); err == nil {
				_, _, err = t.Stop()
			}
			t.Close()
		}
		untraced[g.UUID] = err
	}
	return untraced
}

// nvidia reports whether there are real GPUs.
func (f deviceFacts) nvidia() bool { return len(f.gpus) > 0 && !strings.HasPrefix(f.spec, "sim") }

// Driver versions from which something works.
const (
	driverNeeded = 510
	// driverCheckpoint has cuCheckpointProcess*: swapping a task out.
	driverCheckpoint = 570
)

func (f deviceFacts) judge() []Finding {
	out := findings{area: "GPU"}
	switch {
	case f.spec == "sim":
		out.add(Skip, "driver", "the GPU is simulated inside laxity up (--device=sim)", "", "")
		return out.list
	case errors.Is(f.err, device.ErrUnavailable):
		out.add(Fail, "driver", f.err.Error(), "there is no GPU to share, or its driver does not answer",
			"see above; to try Laxity without a GPU: laxity demo, or laxity up --device=sim")
		return out.list
	case f.err != nil:
		out.add(Fail, "driver", f.err.Error(), "the GPUs cannot be read", "see what nvidia-smi and dmesg (XID errors) say")
		return out.list
	case len(f.gpus) == 0:
		out.add(Fail, "driver", "it answers, but lists no GPU", "there is nothing to observe",
			"see what nvidia-smi -L says; in a container, start it with --gpus all")
		return out.list
	}
	f.driver(&out)
	for _, g := range f.gpus {
		name := fmt.Sprintf("GPU %d", g.Index)
		switch {
		case g.ProcessesErr != nil:
			out.add(Fail, name, fmt.Sprintf("%s: its processes cannot be listed: %v", g.Name, g.ProcessesErr),
				"its tasks are not seen", "see dmesg for XID errors; a GPU that fell off the bus needs a reset or a reboot")
		case g.Parent != "":
			out.add(OK, name, fmt.Sprintf("%s, MIG instance %s", g.Name, g.UUID), "the driver reports no utilisation of MIG instances; each instance is arbitrated alone", "")
		default:
			out.ok(name, fmt.Sprintf("%s, %s, %.0f GiB", g.Name, g.UUID, float64(g.MemoryTotal)/(1<<30)))
			f.seconds(&out, g)
		}
	}
	return out.list
}

// seconds says what GPU-seconds and energy of containers are made of.
func (f deviceFacts) seconds(out *findings, g device.GPU) {
	err, real := f.untraced[g.UUID]
	name := fmt.Sprintf("use of GPU %d", g.Index)
	switch {
	case !real:
	case err == nil:
		out.ok(name, "GPU-seconds of containers are by the driver's trace of context switches")
	default:
		out.add(OK, name, "GPU-seconds of containers are by the driver's samples: "+err.Error(),
			"containers that share the GPU may each have a sixth more or less than the metric says", "")
	}
}

func (f deviceFacts) driver(out *findings) {
	version := f.gpus[0].Driver
	found := fmt.Sprintf("version %s, one reading takes %.1f ms", version, 1000*f.took.Seconds())
	major, err := strconv.Atoi(strings.SplitN(version, ".", 2)[0])
	switch {
	case err != nil || !f.nvidia():
		out.ok("driver", found)
	case major < driverNeeded:
		out.add(Fail, "driver", found, fmt.Sprintf("NVML before %d cannot list processes as Laxity needs them", driverNeeded), fmt.Sprintf("install %d or later", driverNeeded))
	case major < driverCheckpoint:
		out.add(Warn, "driver", found, "tasks cannot be swapped out (checkpointed) by this driver", fmt.Sprintf("install %d or later; without it pausing still works", driverCheckpoint))
	default:
		out.ok("driver", found)
	}
}
