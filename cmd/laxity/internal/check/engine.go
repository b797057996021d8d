package check

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/client"

	"github.com/laxity/laxity/actuator/enforce/docker"
	"github.com/laxity/laxity/internal/enginekind"
)

// engineFacts are what the container engine says of itself.
type engineFacts struct {
	host string
	err  error
	info system.Info

	podman   string // its version; empty for Docker
	rootless bool   // Podman's word; Docker's is among its security options
	events   error  // why it tells of no events
	cdi      bool   // NVIDIA's GPUs are described for CDI
}

// engineWithin is how long the engine may take to answer all questions.
var engineWithin = 10 * time.Second

func gatherEngine(ctx context.Context, host string) (f engineFacts) {
	f.host = host
	c, err := docker.Dial(host)
	if err != nil {
		f.err = err
		return f
	}
	defer c.Close()
	f.host = c.DaemonHost()
	ctx, cancel := context.WithTimeout(ctx, engineWithin)
	defer cancel()
	if f.info, f.err = c.Info(ctx); f.err != nil {
		return f
	}
	if f.podman, f.err = enginekind.Podman(ctx, c); f.err == nil && f.podman != "" {
		f.rootless, f.err = enginekind.Rootless(ctx, c)
	}
	f.events = tells(ctx, c)
	f.cdi = describedForCDI("/etc/cdi", "/var/run/cdi")
	return f
}

// tells returns why the engine tells of no events: the stream of one that does stays open.
func tells(ctx context.Context, c client.SystemAPIClient) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	messages, errs := c.Events(ctx, events.ListOptions{})
	stays := time.After(300 * time.Millisecond)
	for {
		select {
		case <-messages:
		case err := <-errs:
			if errors.Is(err, io.EOF) {
				err = errors.New("its stream of events ends at once")
			}
			return err
		case <-stays:
			return nil
		}
	}
}

// describedForCDI reports whether one of the folders has a description of NVIDIA's GPUs.
func describedForCDI(folders ...string) bool {
	for _, dir := range folders {
		files, _ := filepath.Glob(filepath.Join(dir, "*")) // the pattern is well-formed
		for _, path := range files {
			if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), "nvidia.com/gpu") {
				return true
			}
		}
	}
	return false
}

func (f engineFacts) judge(nvidia bool) []Finding {
	out := findings{area: "Docker"}
	if f.err != nil {
		out.add(Fail, "engine", fmt.Sprintf("%s: %v", f.host, f.err), "containers can be neither seen nor paused", f.fix())
		return out.list
	}
	found := fmt.Sprintf("Docker %s at %s", f.info.ServerVersion, f.host)
	if f.podman != "" {
		out.area = "Podman"
		found = fmt.Sprintf("Podman %s at %s", f.podman, f.host)
	}
	switch major, minor := engineVersion(f.info.ServerVersion); {
	case !strings.HasPrefix(f.host, "unix://"):
		out.add(Fail, "engine", found, "GPU processes are known by their PIDs on their own machine, so that exporter and actuator must run where the engine is",
			"run laxity check on that machine; other machines' engines belong in nodes.yaml (--nodes.file)")
	case f.podman != "" && major > 0 && major < 4:
		out.add(Warn, "engine", found, "tried with Podman 4.3; the Docker API of older ones may lack something", "upgrade Podman")
	case f.podman == "" && major > 0 && (major < 20 || major == 20 && minor < 10):
		out.add(Fail, "engine", found, "engines before 20.10 are not supported", "upgrade Docker")
	default:
		out.ok("engine", found)
	}
	f.judgeSetup(&out)
	switch {
	case nvidia && f.podman != "":
		f.judgeCDI(&out)
	case nvidia:
		f.judgeRuntime(&out)
	}
	return out.list
}

func (f engineFacts) judgeSetup(out *findings) {
	out.ok("cgroup", fmt.Sprintf("version %s, driver %s", orUnknown(f.info.CgroupVersion), orUnknown(f.info.CgroupDriver)))
	option := func(name string) bool {
		return slices.ContainsFunc(f.info.SecurityOptions, func(o string) bool { return strings.Contains(o, "name="+name) })
	}
	if f.events != nil {
		fix := "look into the engine's log"
		if f.podman != "" {
			fix = `set events_logger = "journald" or "file" in containers.conf, then systemctl restart podman.socket`
		}
		out.add(Warn, "events", f.events.Error(), "starts, ends and pauses of containers are seen only when Laxity lists them again", fix)
	}
	switch {
	case !f.rootless && !option("rootless"):
	case f.podman != "" && f.info.CgroupVersion == "1":
		out.add(Fail, "rootless", "the engine runs without root, on cgroup version 1", "its containers have no control groups: no process is known to be theirs, and none can be paused",
			"boot with cgroup version 2 (systemd.unified_cgroup_hierarchy=1), or use root's Podman: --docker.host unix:///run/podman/podman.sock")
	case f.podman != "":
		out.add(Warn, "rootless", "the engine runs without root", "only this user's containers are seen and paused: root and every other user have a Podman of their own",
			"run Laxity as root with this user's socket; containers that share GPUs belong on one Podman")
	default:
		out.add(Fail, "rootless", "the engine runs without root", "pausing needs the freezer of a cgroup that is not delegated to users; PIDs are of another namespace", "use the system's engine: --docker.host unix:///var/run/docker.sock")
	}
	if option("userns") {
		out.add(Warn, "user namespaces", "userns-remap is on", "not tested: files of the containers belong to other users", "give exporter and actuator CAP_DAC_READ_SEARCH")
	}
}

// judgeCDI looks for the way by which Podman gives GPUs.
func (f engineFacts) judgeCDI(out *findings) {
	if f.cdi {
		out.ok("CDI", "NVIDIA's GPUs are described")
		return
	}
	out.add(Warn, "CDI", "no description of NVIDIA's GPUs in /etc/cdi or /var/run/cdi", "podman run --device nvidia.com/gpu=all fails, and so does laxity run; Podman ignores --gpus",
		"install the NVIDIA container toolkit; nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml")
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
		return "start Docker (systemctl start docker) or Podman (systemctl start podman.socket), and name its socket: --docker.host=unix:///run/podman/podman.sock is Podman's"
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
