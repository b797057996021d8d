package check

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/source"
	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/exporter/task"
)

// exporterFacts are what a running exporter says.
type exporterFacts struct {
	at   Address
	err  error
	snap *task.Snapshot
	now  time.Time // when it was asked
	may  permission
}

func gatherExporter(ctx context.Context, at Address) exporterFacts {
	f := exporterFacts{at: at}
	source, err := source.NewHTTP(at.URL, at.client())
	if err == nil {
		f.snap, err = source.Snapshot(ctx)
	}
	f.err, f.now = err, time.Now()
	if err == nil {
		f.may = permitted(ctx, at, http.MethodPatch, changePath)
	}
	return f
}

// changePath changes a container that there is not; without a body it would change none.
const changePath = "/api/v1/containers/laxity-check"

// staleAfter is the age from which rules and actuator do not act on a snapshot.
const staleAfter = 10 * time.Second

func (f exporterFacts) judge() []Finding {
	out := findings{area: "Exporter"}
	if f.err != nil {
		out.away(f.at, f.err, "nothing is observed", "sudo laxity up, or systemctl start laxity-exporter; elsewhere: --exporter.url")
		return out.list
	}
	s := f.snap
	out.ok("running", fmt.Sprintf("node %s, %d GPUs, %d containers, %d unfinished tasks, at %s", s.Node, len(s.GPUs), len(s.Containers), len(s.Tasks), f.at.URL))
	switch age, ahead := s.Age.Duration(), s.Time.Sub(f.now); {
	case !s.Health.DeviceUp:
		out.add(Fail, "GPUs", s.Health.DeviceError, "its facts are old, and the actuator does not act on them", "see what nvidia-smi and dmesg say on that machine")
	case age > staleAfter:
		out.add(Fail, "GPUs", fmt.Sprintf("its facts are %v old", age.Round(time.Second)), "rules and actuator act on nothing older than 10s", "see the exporter's log")
	case ahead > time.Second:
		out.add(Warn, "GPUs", fmt.Sprintf("its clock is %v ahead of this machine's", ahead.Round(time.Millisecond)), "deadlines are compared across machines", "run NTP on both")
	default:
		out.ok("GPUs", "answer")
	}
	if !s.Health.EngineUp {
		out.add(Fail, "containers", s.Health.EngineError, "containers are as last seen", "see what docker ps says on that machine; give the exporter the socket")
	}
	if s.Health.Sensor == task.SourceUprobe {
		out.ok("sensor", "uprobe: starts and ends are exact")
	} else {
		out.add(Warn, "sensor", fmt.Sprintf("%s; %s", s.Health.Sensor, s.Health.SensorReason), sensorLost["uprobe"], "see Kernel and Permissions above, for the exporter's user and namespaces")
	}
	out.permission(f.may, "the exporter", "laxity deadline from here is refused")
	f.labels(&out)
	return out.list
}

func (f exporterFacts) labels(out *findings) {
	var bad []string
	for _, c := range f.snap.Containers {
		for _, l := range c.Invalid {
			bad = append(bad, fmt.Sprintf("%s: %s=%s (%s)", c.Name, l.Label, l.Value, l.Hint))
		}
	}
	if len(bad) > 0 {
		out.add(Warn, "labels", strings.Join(bad, "; "), "each counts as its safe value: no deadline, no limit, never paused; one with an unknown name counts for nothing", "start the container anew with a label that can be read; deadline and share can be changed with laxity deadline and laxity share")
	}
	managed := slices.ContainsFunc(f.snap.Containers, func(c task.Container) bool { return c.Spec.Managed })
	if !managed {
		out.add(OK, "managed containers", "none", "nothing is ever held: only containers with at least one of Laxity's labels are", "docker run --label laxity.deadline=9s …")
	}
}

// actuatorFacts are what a running actuator says.
type actuatorFacts struct {
	at    Address
	err   error
	state state.State
	may   permission
}

func gatherActuator(ctx context.Context, at Address) actuatorFacts {
	f := actuatorFacts{at: at}
	if f.err = fetch(ctx, at, "/api/v1/state", nil, &f.state); f.err == nil {
		f.may = permitted(ctx, at, http.MethodGet, "/api/v1/admission?deadline=9s")
	}
	return f
}

func (f actuatorFacts) judge() []Finding {
	out := findings{area: "Actuator"}
	if f.err != nil {
		out.away(f.at, f.err, "nothing is arbitrated", "sudo laxity up, or systemctl start laxity-actuator; elsewhere: --actuator.url")
		return out.list
	}
	s := f.state
	out.ok("running", fmt.Sprintf("node %s, policy %s, share %s, at %s", s.Node, s.Policy, s.Share, f.at.URL))
	switch {
	case s.Standby != "":
		out.add(Warn, "acting", s.Standby, "it stands by: another actuator acts on this engine, or the engine cannot be asked which one it is", "stop one of two, unless that is wanted; see Docker above")
	case s.Breaker != "":
		out.add(Warn, "acting", s.Breaker, "the breaker is open: everything was released, and nothing is held for a minute", "see laxity_actuator_actions_total and --breaker.actions")
	case !s.Ready:
		out.add(Fail, "acting", "not ready: "+orUnknown(s.Trouble), "nothing new is held", "see the actuator's log; it needs the exporter (--exporter) and, if it is required, a guardian")
	case s.DryRun:
		out.add(Warn, "acting", "--dry-run", "it decides and pauses nothing", "leave --dry-run out when its decisions are what you want")
	case s.Arbitrate == config.Never:
		out.add(Warn, "acting", "--arbitrate=never", "it observes contention, but does not act on it", "--arbitrate=auto")
	default:
		out.ok("acting", "ready")
	}
	out.permission(f.may, "the actuator", "laxity run, pause and release from here are refused")
	switch {
	case s.GuardianUp:
		out.ok("guardian", "watches")
	case s.DryRun:
		out.ok("guardian", "not needed: --dry-run stops nothing")
	default:
		out.add(Warn, "guardian", "none watches", "if the actuator were killed now, what it holds would stay stopped; with --guardian=require nothing is held, and with spawn nothing after 5 s", "systemctl start laxity-guardian, or --guardian=spawn")
	}
	if len(s.PutAside) > 0 {
		out.add(Warn, "state", "could not be read and was put aside: "+strings.Join(s.PutAside, ", "), "its content was lost: alerts come again, reservations do not", "see the disk (dmesg), then remove these files from the state folder")
	}
	for _, l := range s.Lacks {
		out.add(Warn, "sandbox of the "+l.Of, l.What, l.Means, l.Fix)
	}
	holding(&out, s)
	switch {
	case s.MemoryGuard == string(config.MemoryOff):
		out.add(OK, "GPU memory", "--memory-guard=off", "laxity.gpu-memory counts only when a node is chosen", "")
	case s.MemoryGuard != "":
		out.add(Warn, "GPU memory", s.MemoryGuard, limitsWatched, "the memory guard under Kernel says what is missing")
	case s.MemoryShare.Divides():
		out.add(OK, "GPU memory", fmt.Sprintf("--memory-share=%s", s.MemoryShare),
			"allocations of every container with a laxity.* label may wait or be refused, also without laxity.gpu-memory",
			"--memory-share=limit, where only those with that label are to be asked")
	default:
		out.ok("GPU memory", "allocations beyond laxity.gpu-memory are denied; containers without that label are not asked (--memory-share=limit)")
	}
	if s.Swap {
		out.ok("swapping", "containers with a laxity.* label can be swapped off the GPU")
	} else {
		out.add(OK, "swapping", "no", "containers are only paused, with what they hold in GPU memory", "the actuator's log says why, unless --swap=off does")
	}
	unkept(&out, s)
	if s.Drained {
		out.add(Warn, "placement", "the node is drained", "no new container is placed here", "laxity nodes says why")
	}
	return out.list
}
