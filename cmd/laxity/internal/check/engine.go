package check

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/docker/docker/api/types/system"

	"github.com/laxity/laxity/actuator/enforce/docker"
)

// engineFacts are what the Docker engine says of itself.
type engineFacts struct {
	host string
	err  error
	info system.Info
}

func gatherEngine(ctx context.Context, host string) (f engineFacts) {
	f.host = host
	c, err := docker.Dial(host)
	if err != nil {
		f.err = err
		return f
	}
	defer c.Close()
	f.host = c.DaemonHost()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	f.info, f.err = c.Info(ctx)
	return f
}

func (f engineFacts) judge(nvidia bool) []Finding {
	out := findings{area: "Docker"}
	if f.err != nil {
		out.add(Fail, "engine", fmt.Sprintf("%s: %v", f.host, f.err), "containers can be neither seen nor paused", f.fix())
		return out.list
	}
	found := fmt.Sprintf("version %s at %s", f.info.ServerVersion, f.host)
	switch major, minor := engineVersion(f.info.ServerVersion); {
	case !strings.HasPrefix(f.host, "unix://"):
		out.add(Fail, "engine", found, "GPU processes are known by their PIDs on their own machine, so that exporter and actuator must run where the engine is",
			"run laxity check on that machine; other machines' engines belong in nodes.yaml (--nodes.file)")
	case major > 0 && (major < 20 || major == 20 && minor < 10):
		out.add(Fail, "engine", found, "engines before 20.10 are not supported", "upgrade Docker")
	default:
		out.ok("engine", found)
	}
	f.judgeSetup(&out)
	if nvidia {
		f.judgeRuntime(&out)
	}
	return out.list
}

func (f engineFacts) judgeSetup(out *findings) {
	out.ok("cgroup", fmt.Sprintf("version %s, driver %s", orUnknown(f.info.CgroupVersion), orUnknown(f.info.CgroupDriver)))
	option := func(name string) bool {
		return slices.ContainsFunc(f.info.SecurityOptions, func(o string) bool { return strings.Contains(o, "name="+name) })
	}
	if option("rootless") {
		out.add(Fail, "rootless", "the engine runs without root", "pausing needs the freezer of a cgroup that is not delegated to users; PIDs are of another namespace", "use the system's engine: --docker.host unix:///var/run/docker.sock")
	}
	if option("userns") {
		out.add(Warn, "user namespaces", "userns-remap is on", "not tested: files of the containers belong to other users", "give exporter and actuator CAP_DAC_READ_SEARCH")
	}
}

// judgeRuntime looks for a way by which `docker run --gpus` works.
func (f engineFacts) judgeRuntime(out *findings) {
	_, runtime := f.info.Runtimes["nvidia"]
	switch {
	case runtime:
		out.ok("NVIDIA runtime", "known to the engine")
	case len(f.info.CDISpecDirs) > 0:
		out.add(Warn, "NVIDIA runtime", "not known to the engine, CDI is on", "docker run --gpus may fail", "where it does: nvidia-ctk runtime configure --runtime=docker, then restart Docker")
	default:
		out.add(Warn, "NVIDIA runtime", "not known to the engine", "docker run --gpus works only where the toolkit's hook is installed", "install the NVIDIA container toolkit; nvidia-ctk runtime configure --runtime=docker; restart Docker")
	}
}

func (f engineFacts) fix() string {
	switch text := f.err.Error(); {
	case strings.Contains(text, "permission denied"):
		return "run it with sudo, or as a member of the group of the socket"
	case strings.HasPrefix(f.host, "unix://"):
		return "start Docker (systemctl start docker), or name its socket with --docker.host"
	default:
		return "check the address (--docker.host, DOCKER_HOST)"
	}
}

// engineVersion is 0, 0 for what is no version, as of a build from source.
func engineVersion(v string) (major, minor int) {
	parts := strings.SplitN(v, ".", 3)
	if len(parts) < 2 {
		return 0, 0
	}
	major, err := strconv.Atoi(parts[0])
	if err != nil {
		return 0, 0
	}
	minor, _ = strconv.Atoi(parts[1])
	return major, minor
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}
