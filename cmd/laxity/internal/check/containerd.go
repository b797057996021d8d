package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"github.com/laxity/laxity/actuator/undo"
	"github.com/laxity/laxity/internal/ctrd"
	engines "github.com/laxity/laxity/internal/engine"
)

// judgeEngine examines the engine that exporter and actuator use, or would use.
func judgeEngine(ctx context.Context, choice engines.Choice, stateDirs []string, nvidia bool) []Finding {
	choice, how := chooseEngine(choice, stateDirs, engines.This)
	switch choice.Kind {
	case engines.Containerd:
		return gatherContainerd(ctx, choice).judge(how)
	case engines.CRIO:
		return gatherCRIO(ctx, choice).judge(how)
	}
	found := gatherEngine(ctx, choice.DockerHost).judge(nvidia)
	return append(found, judgeChoice(found[0].Area, how)...) // Docker or Podman, as it says of itself
}

// chooseEngine returns the engine to examine, and how it was chosen; "" where the person did. Without
// a person's choice it is that of the last actuator, as for laxity off: in a container this machine's
// usual sockets are missing, and only the actuator's flags say where the engine's is. Else the sockets
// of m decide.
func chooseEngine(choice engines.Choice, stateDirs []string, m engines.Machine) (chosen engines.Choice, how string) {
	if choice.Given(m) {
		return choice.Resolve(m)
	}
	var unread error
	for _, dir := range stateDirs {
		recorded, ok, err := undo.RecordedEngine(dir)
		if ok && !slices.Contains(engines.Kinds[1:], recorded.Kind) {
			err = fmt.Errorf("it names the engine %q", recorded.Kind)
		}
		switch {
		case err != nil:
			unread = errors.Join(unread, fmt.Errorf("%s cannot be read: %w", undo.EngineFile(dir), err))
		case ok:
			recorded, why := recorded.Here(m)
			how = "the last actuator used it (" + undo.EngineFile(dir) + ")"
			if why != "" {
				how += "; " + why
			}
			return recorded, how
		}
	}
	chosen, how = choice.Resolve(m)
	if unread != nil {
		how = fmt.Sprintf("%s (%v)", how, unread)
	}
	return chosen, how
}

// judgeChoice says why an engine was taken, where that was not a person's choice.
func judgeChoice(area, how string) []Finding {
	out := findings{area: area}
	if how != "" {
		out.ok("chosen", how)
	}
	return out.list
}

// containerdFacts are what containerd says of itself.
type containerdFacts struct {
	address, version string
	err              error
	namespaces       []string
	// strange counts the containers whose processes cannot be told from their control group.
	strange int
	podsErr error    // of the CRI service
	lacks   []string // what the CRI service lacks
}

func gatherContainerd(ctx context.Context, choice engines.Choice) (f containerdFacts) {
	f.address = choice.Address
	c, err := ctrd.New(choice.Containerd())
	if err != nil {
		f.err = err
		return f
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if f.version, f.err = c.Version(ctx); f.err != nil {
		return f
	}
	if f.namespaces, f.err = c.Namespaces(ctx); f.err != nil {
		return f
	}
	for _, namespace := range f.namespaces {
		containers, err := c.Containers(ctx, namespace)
		if err != nil {
			f.err = err
			return f
		}
		for _, c := range containers {
			if !c.Watchable() {
				f.strange++
			}
		}
	}
	f.lacks, f.podsErr = c.Runtime(ctx)
	return f
}

func (f containerdFacts) judge(how string) []Finding {
	out := findings{area: "containerd"}
	if f.err != nil {
		out.engineAway(f.address, f.err, "start containerd (systemctl start containerd), or name its socket with --containerd.address")
		return append(out.list, judgeChoice(out.area, how)...)
	}
	out.ok("engine", fmt.Sprintf("version %s at %s", f.version, f.address))
	if len(f.namespaces) == 0 {
		out.add(Warn, "namespaces", "none is in use", "there is no container to see", "name those to use with --containerd.namespace; Docker's (moby) are seen with --engine=docker")
	} else {
		out.ok("namespaces", strings.Join(f.namespaces, ", "))
	}
	out.strange(f.strange, "start them with nerdctl, or with ctr run and an id of 64 hex digits")
	f.judgePods(&out)
	return append(out.list, judgeChoice(out.area, how)...)
}

// engineAway says that the engine does not answer.
func (f *findings) engineAway(address string, err error, fix string) {
	if strings.Contains(err.Error(), "permission denied") {
		fix = "run it with sudo"
	}
	f.add(Fail, "engine", fmt.Sprintf("%s: %v", address, err), "containers can be neither seen nor paused", fix)
}

// strange says that n containers cannot be watched for their ids.
func (f *findings) strange(n int, fix string) {
	if n > 0 {
		f.add(Warn, "ids", fmt.Sprintf("%d of its containers have ids that are not 64 hex digits", n),
			"they cannot be told from the control group of their processes, and are not watched", fix)
	}
}

func (f containerdFacts) judgePods(out *findings) {
	switch {
	case errdefs.IsNotImplemented(f.podsErr):
		out.add(Warn, "pods", "it has no CRI service (version 1)", "Kubernetes cannot use it; containers of nerdctl are seen",
			"where this is a node of Kubernetes: remove cri from disabled_plugins in /etc/containerd/config.toml")
	case f.podsErr != nil:
		out.add(Warn, "pods", fmt.Sprintf("its CRI service does not answer: %v", f.podsErr), "annotations of pods cannot be read", "look at containerd's log")
	case len(f.lacks) > 0:
		out.add(Warn, "pods", "its CRI service is not ready: "+strings.Join(f.lacks, "; "), "Kubernetes starts no pods here, but for those on the host's network", "look at containerd's log; the node's network plugin sets the network up")
	default:
		out.ok("pods", "its CRI service is ready")
	}
}
