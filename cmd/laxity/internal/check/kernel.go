package check

import (
	"os"
	"strings"

	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/actuator/enforce/memory"
	"github.com/laxity/laxity/exporter/sensor/detect"
	"github.com/laxity/laxity/exporter/sensor/uprobe"
)

// ability is something that a kernel, a driver or a permission allows or not.
type ability struct {
	name string
	// lost is what happens without it.
	lost string
	err  error
}

// limitsWatched is what becomes of limits where allocations are not guarded.
const limitsWatched = "laxity.gpu-memory is watched in readings of the GPU: a container that holds more is paused and reported; no allocation is denied or waits"

// kernelFacts are what this kernel can.
type kernelFacts struct {
	release  string
	lockdown string // "", none, integrity or confidentiality
	sensors  []detect.Finding
	others   []ability
}

func gatherKernel(proc string, more ...ability) kernelFacts {
	var f kernelFacts
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		f.release = unix.ByteSliceToString(name.Release[:])
	}
	if text, err := os.ReadFile("/sys/kernel/security/lockdown"); err == nil {
		f.lockdown = lockdown(string(text))
	}
	f.sensors = detect.All(proc)
	f.others = []ability{
		{"many probes at once", "probes are set one by one: 0.1–0.3 s for a new driver library, nothing else", features.HaveBPFLinkUprobeMulti()},
		{"launches", "a server (laxity.release=busy) counts as one task, from its first context to its end", uprobe.CanTrack(uprobe.Options{Proc: proc})},
		{"memory guard", limitsWatched, memory.Check()},
	}
	f.others = append(f.others, more...)
	return f
}

// lockdown returns the chosen word of "none [integrity] confidentiality".
func lockdown(text string) string {
	for word := range strings.FieldsSeq(text) {
		if chosen, ok := strings.CutPrefix(word, "["); ok {
			return strings.TrimSuffix(chosen, "]")
		}
	}
	return ""
}

// sensorLost is what happens without a sensor, by its name.
var sensorLost = map[string]string{
	"uprobe":   "starts are seen by the next best way, with a larger error; a task that is over before it is looked at is not counted; servers (laxity.release=busy) count as one task",
	"fanotify": "where uprobes do not work either, starts are seen 0.1–0.5 s late, in the GPU's list of processes",
	"pidfd":    "the exporter does not start",
}

func (f kernelFacts) judge() []Finding {
	out := findings{area: "Kernel"}
	switch f.lockdown {
	case "", "none":
		out.ok("release", "Linux "+f.release)
	default:
		out.add(Warn, "release", "Linux "+f.release+", lockdown "+f.lockdown,
			"BPF programs may not write to a process's memory (integrity), or read the kernel's (confidentiality)",
			"lockdown comes with Secure Boot; see below what it forbids")
	}
	for _, s := range f.sensors {
		level := Warn
		if s.Source == "pidfd" {
			level = Fail
		}
		judgeAbility(&out, level, ability{name: "sensor " + string(s.Source), lost: sensorLost[string(s.Source)], err: s.Err}, "sees "+s.Sees)
	}
	for _, a := range f.others {
		judgeAbility(&out, Warn, a, "works here")
	}
	return out.list
}

// judgeAbility says what is lost where it is missing. The errors of our own
// checks say what would help.
func judgeAbility(out *findings, level Level, a ability, works string) {
	if a.err == nil {
		out.ok(a.name, works)
		return
	}
	out.add(level, a.name, a.err.Error(), a.lost, "")
}
