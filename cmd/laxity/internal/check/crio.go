package check

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"github.com/laxity/laxity/internal/cri"
	engines "github.com/laxity/laxity/internal/engine"
	"github.com/laxity/laxity/internal/freezer"
	"github.com/laxity/laxity/internal/oci"
)

// crioFacts are what CRI-O, or another engine with the CRI, says of itself.
type crioFacts struct {
	address, name, version string
	err                    error
	lacks                  []string
	// running counts the containers that run, strange those of them whose processes cannot be told
	// from their control group. nameless run, but the engine does not say by which process; of the
	// others unfrozen cannot be paused, for the reason in freezer.
	running, strange, nameless, unfrozen int
	freezer                              error
	events                               error // why it tells of no events
}

// crioTells is how long an open stream of events counts as one: an engine without events ends it at
// once.
const crioTells = 300 * time.Millisecond

func gatherCRIO(ctx context.Context, choice engines.Choice) (f crioFacts) {
	f.address = choice.CRIOAddress
	c, err := cri.New(f.address)
	if err != nil {
		f.err = err
		return f
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if f.name, f.version, f.err = c.Version(ctx); f.err != nil {
		return f
	}
	if f.lacks, f.err = c.Lacks(ctx); f.err != nil {
		return f
	}
	if f.err = f.containers(ctx, c, freezer.Kernel{Proc: "/proc"}); f.err != nil {
		return f
	}
	// No deadline: gRPC would send it, and the server could end the stream before our own clock does.
	stays, end := context.WithCancel(ctx)
	defer time.AfterFunc(crioTells, end).Stop()
	defer end()
	if f.events = c.Follow(stays, func() {}); stays.Err() != nil {
		f.events = nil
	}
	return f
}

// containers looks at those that run.
func (f *crioFacts) containers(ctx context.Context, c *cri.Client, kernel freezer.Kernel) error {
	items, err := c.List(ctx)
	if err != nil {
		return err
	}
	for _, i := range items {
		if i.State != cri.Running {
			continue
		}
		f.running++
		if !oci.LongID(i.ID) {
			f.strange++
			continue
		}
		found, err := c.Describe(ctx, i.ID, nil)
		switch {
		case errdefs.IsNotFound(err): // it ended meanwhile
			f.running--
			continue
		case err != nil:
			return err
		case found.PID == 0:
			f.nameless++
			continue
		}
		if _, err := kernel.Of(i.ID, found.PID); err != nil {
			if _, ferr := kernel.Find(i.ID); ferr != nil {
				f.unfrozen++
				f.freezer = errors.Join(err, ferr)
			}
		}
	}
	return nil
}

func (f crioFacts) judge(how string) []Finding {
	out := findings{area: "CRI-O"}
	if f.err != nil {
		out.engineAway(f.address, f.err, "start CRI-O (systemctl start crio), or name its socket with --crio.address")
		return append(out.list, judgeChoice(out.area, how)...)
	}
	found := fmt.Sprintf("%s %s at %s", f.name, f.version, f.address)
	if f.name == "containerd" {
		out.add(Warn, "engine", found, "containers are paused behind its back, and those in no pod are not seen", "use it as what it is: --engine=containerd --containerd.address="+f.address)
	} else {
		out.ok("engine", found)
	}
	if f.events != nil {
		out.add(Warn, "events", f.events.Error(), "starts and ends of containers are seen within a second, not at once", "set enable_pod_events = true in [crio.runtime] (CRI-O 1.26 and later), and restart it")
	} else {
		out.ok("events", "it tells of them")
	}
	out.strange(f.strange, "look at what made them: CRI-O gives 64 digits")
	f.judgeFreezer(&out)
	if len(f.lacks) > 0 {
		out.add(Warn, "pods", "it is not ready: "+strings.Join(f.lacks, "; "), "Kubernetes starts no pods here, but for those on the host's network", "look at its log; the node's network plugin sets the network up")
	} else {
		out.ok("pods", "it is ready")
	}
	return append(out.list, judgeChoice(out.area, how)...)
}

func (f crioFacts) judgeFreezer(out *findings) {
	switch {
	case f.nameless > 0:
		out.add(Warn, "pause", fmt.Sprintf("it does not say which process is the first of %d of %d containers", f.nameless, f.running), "they cannot be paused", "those of virtual machines never can; keep them off shared GPUs")
	case f.unfrozen > 0:
		out.add(Warn, "pause", fmt.Sprintf("the freezer of %d of %d containers cannot be found: %v", f.unfrozen, f.running, f.freezer), "they cannot be paused", "run it on the node itself, or with the host's /sys/fs/cgroup")
	default:
		out.ok("pause", fmt.Sprintf("by the kernel's freezer (%d containers run)", f.running))
	}
}
