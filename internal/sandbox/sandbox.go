// Package sandbox lists what a daemon needs and its sandbox denies it: a systemd unit, a container,
// or anything else that it was started in. The daemon checks itself, so the answer is true for the
// sandbox in which it runs.
//
// It has two halves: tried tries each thing without side effects, and judge is pure. It imports the
// standard library and golang.org/x/sys.
package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Lack is one thing that a daemon needs and does not have.
type Lack struct {
	// Of is the program: actuator or guardian.
	Of string `json:"of"`
	// What is missing, Means which function does not work without it, Fix what to do.
	What  string `json:"what"`
	Means string `json:"means"`
	Fix   string `json:"fix"`
}

func (l Lack) String() string { return fmt.Sprintf("%s: %s (%s)", l.What, l.Means, l.Fix) }

// Explain appends to the reason why something does not work what is missing.
func Explain(reason string, lacks []Lack) string {
	for _, l := range lacks {
		reason += fmt.Sprintf("; %s (%s)", l.What, l.Fix)
	}
	return reason
}

// Needs are the needs of one daemon.
type Needs struct {
	// Of is the name of the program, Unit that of its systemd unit.
	Of, Unit string
	// Memory: it guards GPU memory by probes, and denies allocations. Otherwise it only releases
	// processes that another program left stopped.
	Memory bool
	// Folders that it writes to.
	Folders []string
	// Devices: it opens the devices of NVIDIA's driver.
	Devices bool
}

// Actuator returns the needs of `laxity-actuator serve` with all its functions.
func Actuator(folders ...string) Needs {
	return Needs{Of: "actuator", Unit: "laxity-actuator.service", Memory: true, Devices: true, Folders: folders}
}

// Guardian returns the needs of `laxity-actuator guardian`.
func Guardian(folders ...string) Needs {
	return Needs{Of: "guardian", Unit: "laxity-guardian.service", Devices: true, Folders: folders}
}

// Check tries what a daemon needs, in the calling process. It changes nothing, and takes less than
// a millisecond.
func Check(n Needs) []Lack { return judge(n, try(n)) }

// place is where a program runs, which decides the advice.
type place int

const (
	inNothing   place = iota // unknown
	inUnit                   // a systemd unit
	inContainer              // a container of Docker or Podman
)

// tried is the result of trying.
type tried struct {
	place place
	caps  uint64           // effective, one bit each
	calls map[string]error // by the name of the system call; nil: allowed
	// driver: NVIDIA's driver is loaded. devices are its device files; nil: it can be opened.
	driver  bool
	devices map[string]error
	bpf     error            // of a pin in the BPF file system
	folders map[string]error // of a file in each
}

const (
	noChannels = "time slices cannot be set, and channels of a GPU not be switched"
	noMemory   = "laxity.gpu-memory is only watched: no allocation is refused"
	noLetGo    = "whom another actuator left stopped cannot be released"
	noProbes   = "there are no probes on CUDA's functions"
)

// capabilities that are needed, and by which programs.
var capabilities = []struct {
	bit   int
	name  string
	means string
	admin bool // CAP_SYS_ADMIN does as well
	all   bool // the guardian too
}{
	{unix.CAP_SYS_PTRACE, "CAP_SYS_PTRACE", noChannels + "; " + noMemory, false, true},
	{unix.CAP_DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH", "descriptors and libraries of other users' processes are not found", false, true},
	{unix.CAP_KILL, "CAP_KILL", noLetGo, false, true},
	{unix.CAP_BPF, "CAP_BPF", noMemory + "; " + noLetGo, true, true},
	{unix.CAP_PERFMON, "CAP_PERFMON", noProbes + "; " + noMemory, true, false},
}

// calls that a system call filter may refuse, in the order in which they are reported.
var calls = []struct {
	name, means string
	// needs is the capability without which the kernel, or Docker's profile, refuses the call, too;
	// 0: none.
	needs  int
	memory bool // only a program that guards memory needs it
}{
	{"pidfd_open", noChannels, 0, false},
	{"pidfd_getfd", noChannels, unix.CAP_SYS_PTRACE, false},
	{"pidfd_send_signal", noLetGo, 0, false},
	{"bpf", noMemory + "; " + noLetGo, unix.CAP_BPF, false},
	{"perf_event_open", noProbes + "; " + noMemory, unix.CAP_PERFMON, true},
	{"ptrace", noMemory, unix.CAP_SYS_PTRACE, true},
	{"process_vm_writev", "cuMemGetInfo tells a program the card's memory, not its limit", unix.CAP_SYS_PTRACE, true},
}

func judge(n Needs, t tried) []Lack {
	var lacks []Lack
	add := func(what, means, fix string) { lacks = append(lacks, Lack{n.Of, what, means, fix}) }
	has := func(bit int, admin bool) bool {
		return t.caps&(1<<uint(bit)) != 0 || admin && t.caps&(1<<unix.CAP_SYS_ADMIN) != 0
	}
	missing := map[int]bool{}
	for _, c := range capabilities {
		if (n.Memory || c.all) && !has(c.bit, c.admin) {
			missing[c.bit] = true
			add("it lacks "+c.name, c.means, t.place.fix("run it as root",
				"CapabilityBoundingSet="+c.name+" in "+n.Unit, "--cap-add "+strings.TrimPrefix(c.name, "CAP_")))
		}
	}
	for _, c := range calls {
		err := t.calls[c.name]
		if err == nil || c.memory && !n.Memory || c.needs != 0 && missing[c.needs] {
			continue
		}
		what := fmt.Sprintf("the system call %s is refused: %v", c.name, err)
		if errors.Is(err, unix.ENOSYS) && t.place != inContainer { // Docker's profile answers the same
			add(what, c.means, "a newer kernel: Linux 5.8 has it")
			continue
		}
		add(what, c.means, t.place.fix("a system call filter that lets it through",
			"SystemCallFilter="+c.name+" in "+n.Unit, "a seccomp profile that lets it through (Docker's own does, from 23 on, with the capabilities of compose/compose.yaml)"))
	}
	if n.Devices && t.driver {
		judgeDevices(n, t, add)
	}
	if t.bpf != nil {
		add("it cannot write to /sys/fs/bpf: "+t.bpf.Error(), noMemory+"; "+noLetGo, t.place.fix("mount -t bpf bpf /sys/fs/bpf",
			"ReadWritePaths=/sys/fs/bpf and no ProtectKernelTunables= in "+n.Unit, "mount a BPF file system there, the same for actuator and guardian"))
	}
	for _, dir := range n.Folders {
		if err := t.folders[dir]; err != nil {
			add(fmt.Sprintf("it cannot write to %s: %v", dir, err), "what is changed cannot be put on record, so nothing is", t.place.fix("run it as root",
				"RuntimeDirectory= and StateDirectory= in "+n.Unit, "mount it from the host, writable"))
		}
	}
	return lacks
}

// judgeDevices: every program needs the resource manager's device. The self-test, NVML and swapping
// need those of the cards.
func judgeDevices(n Needs, t tried, add func(what, means, fix string)) {
	for _, name := range slices.Sorted(maps.Keys(t.devices)) {
		err := t.devices[name]
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) {
			continue // it is there and may be opened; any other error is not the sandbox's
		}
		add(fmt.Sprintf("%s cannot be opened: %v", name, err), noChannels+"; "+noMemory+"; nobody is swapped", t.place.fix("nvidia-modprobe -c 255 -c 0 (a -c for each card), then nvidia-modprobe -c 0 -u",
			"PrivateDevices=no and DeviceAllow=char-nvidia* rw in "+n.Unit+"; if they are, the driver was loaded after it: systemctl restart "+n.Unit,
			"runtime: nvidia and NVIDIA_VISIBLE_DEVICES=all, as in compose/gpu.yaml"))
	}
}

// fix chooses the advice.
func (p place) fix(outside, unit, container string) string {
	switch p {
	case inContainer:
		return container
	case inUnit:
		return "install the unit of this version, or write a drop-in: " + unit
	}
	return outside
}
