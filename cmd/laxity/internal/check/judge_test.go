package check

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/system"
	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/actuator/allocator"
	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/nodes"
	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/exporter/sensor/detect"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/rm/selftest"
)

var (
	errGone = errors.New("connection refused")
	at      = Address{URL: "http://here"}
	given   = Address{URL: "http://here", Given: true}
	now     = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
)

func gpu(driver string) device.GPU {
	return device.GPU{UUID: "GPU-a", Name: "H200", Driver: driver, MemoryTotal: 140 << 30}
}

func engine(change func(*engineFacts)) engineFacts {
	f := engineFacts{host: "unix:///var/run/docker.sock", info: system.Info{ServerVersion: "28.5.2", CgroupVersion: "2", CgroupDriver: "systemd",
		Runtimes: map[string]system.RuntimeWithStatus{"nvidia": {}}}}
	change(&f)
	return f
}

func podman(change func(*engineFacts)) engineFacts {
	f := engineFacts{host: "unix:///run/podman/podman.sock", podman: "4.3.1", cdi: true, info: system.Info{ServerVersion: "4.3.1", CgroupVersion: "2", CgroupDriver: "systemd"}}
	change(&f)
	return f
}

// card is one with this result of a self-test.
func card(r selftest.Result) channelsFacts {
	return channelsFacts{spec: "auto", cards: []cardFacts{{GPU: gpu("580.1"), tested: true, result: r}}}
}

const allCaps = 1<<41 - 1

func rights(change func(*rightsFacts)) rightsFacts {
	f := rightsFacts{caps: allCaps, pidNS: hostPIDNamespace}
	change(&f)
	return f
}

func snapshot(change func(*task.Snapshot)) exporterFacts {
	s := &task.Snapshot{Node: "n", Time: now, Health: task.Health{DeviceUp: true, EngineUp: true, Sensor: task.SourceUprobe}}
	change(s)
	return exporterFacts{at: at, snap: s, now: now}
}

func acting(change func(*state.State)) actuatorFacts {
	f := actuatorFacts{at: at, state: state.State{Ready: true, GuardianUp: true}}
	change(&f.state)
	return f
}

// Each case: what was seen → the level of the finding that matters, and a word
// that its fix, meaning or sight must hold.
func TestJudge(t *testing.T) {
	nothing := func(*engineFacts) {}
	tests := []struct {
		name  string
		got   []Finding
		about string // the finding's name; "" any
		level Level
		word  string
	}{
		{"no driver", deviceFacts{spec: "auto", err: fmt.Errorf("%w: no libnvidia-ml", device.ErrUnavailable)}.judge(), "driver", Fail, "laxity demo"},
		{"simulated", deviceFacts{spec: "sim"}.judge(), "driver", Skip, "sim"},
		{"driver broken", deviceFacts{spec: "auto", err: errGone}.judge(), "driver", Fail, "nvidia-smi"},
		{"no GPU", deviceFacts{spec: "auto"}.judge(), "driver", Fail, "--gpus"},
		{"old driver", deviceFacts{spec: "auto", gpus: []device.GPU{gpu("470.1")}}.judge(), "driver", Fail, "510"},
		{"driver without checkpoints", deviceFacts{spec: "auto", gpus: []device.GPU{gpu("550.54.15")}}.judge(), "driver", Warn, "570"},
		{"new driver", deviceFacts{spec: "auto", gpus: []device.GPU{gpu("580.159.04")}}.judge(), "driver", OK, "580"},
		{"simulated elsewhere", deviceFacts{spec: "sim:/x", gpus: []device.GPU{gpu("1.0")}}.judge(), "driver", OK, "1.0"},
		{"lost GPU", deviceFacts{spec: "auto", gpus: []device.GPU{{ProcessesErr: errGone, Driver: "580.1"}}}.judge(), "GPU 0", Fail, "XID"},
		{"MIG", deviceFacts{spec: "auto", gpus: []device.GPU{{Parent: "GPU-x", Driver: "580.1"}}}.judge(), "GPU 0", OK, "utilisation"},

		{"engine", engine(nothing).judge(true), "engine", OK, "28.5.2"},
		{"no engine", engineFacts{host: "unix:///s", err: errGone}.judge(false), "engine", Fail, "systemctl"},
		{"no containerd", containerdFacts{address: "/s", err: errGone}.judge(""), "engine", Fail, "systemctl"},
		{"containerd not allowed", containerdFacts{err: errors.New("dial: permission denied")}.judge(""), "engine", Fail, "sudo"},
		{"containerd", containerdFacts{namespaces: []string{"k8s.io"}}.judge(""), "pods", OK, ""},
		{"containerd, found", containerdFacts{}.judge("its socket is there"), "chosen", OK, ""},
		{"containerd without containers", containerdFacts{}.judge(""), "namespaces", Warn, "--engine=docker"},
		{"ids typed by hand", containerdFacts{strange: 2}.judge(""), "ids", Warn, "nerdctl"},
		{"no CRI service", containerdFacts{podsErr: errdefs.ErrNotImplemented}.judge(""), "pods", Warn, "disabled_plugins"},
		{"a CRI service that hangs", containerdFacts{podsErr: errGone}.judge(""), "pods", Warn, "log"},
		{"no network", containerdFacts{lacks: []string{"NetworkReady: no CNI"}}.judge(""), "pods", Warn, "network plugin"},
		{"no CRI-O", crioFacts{address: "/s", err: errGone}.judge(""), "engine", Fail, "systemctl"},
		{"CRI-O not allowed", crioFacts{err: errors.New("dial: permission denied")}.judge(""), "engine", Fail, "sudo"},
		{"CRI-O", crioFacts{name: "cri-o", version: "1.37.0"}.judge(""), "engine", OK, "cri-o 1.37.0"},
		{"CRI-O, found", crioFacts{}.judge("its socket is there"), "chosen", OK, ""},
		{"containerd as CRI-O", crioFacts{name: "containerd", address: "/c.sock"}.judge(""), "engine", Warn, "--containerd.address=/c.sock"},
		{"CRI-O without events", crioFacts{events: errdefs.ErrNotImplemented}.judge(""), "events", Warn, "enable_pod_events"},
		{"CRI-O with events", crioFacts{}.judge(""), "events", OK, ""},
		{"CRI-O's ids", crioFacts{strange: 1}.judge(""), "ids", Warn, "64"},
		{"CRI-O's virtual machines", crioFacts{nameless: 1, running: 2}.judge(""), "pause", Warn, "1 of 2"},
		{"CRI-O out of sight", crioFacts{unfrozen: 1, running: 1, freezer: errGone}.judge(""), "pause", Warn, "/sys/fs/cgroup"},
		{"CRI-O's freezer", crioFacts{running: 3}.judge(""), "pause", OK, "3 containers"},
		{"CRI-O without a network", crioFacts{lacks: []string{"NetworkReady: no CNI"}}.judge(""), "pods", Warn, "network plugin"},
		{"not allowed", engineFacts{host: "unix:///s", err: errors.New("permission denied")}.judge(false), "engine", Fail, "sudo"},
		{"old engine", engine(func(f *engineFacts) { f.info.ServerVersion = "19.03.1" }).judge(false), "engine", Fail, "20.10"},
		{"oldest engine", engine(func(f *engineFacts) { f.info.ServerVersion = "20.10.24+dfsg1" }).judge(false), "engine", OK, "20.10"},
		{"engine from source", engine(func(f *engineFacts) { f.info.ServerVersion = "dev" }).judge(false), "engine", OK, "dev"},
		{"engine elsewhere", engine(func(f *engineFacts) { f.host = "tcp://gpu-2:2376" }).judge(false), "engine", Fail, "nodes.yaml"},
		{"rootless", engine(func(f *engineFacts) { f.info.SecurityOptions = []string{"name=seccomp", "name=rootless"} }).judge(false), "rootless", Fail, "docker.sock"},
		{"Podman", podman(func(*engineFacts) {}).judge(true), "engine", OK, "Podman 4.3.1"},
		{"old Podman", podman(func(f *engineFacts) { f.info.ServerVersion = "3.0.1" }).judge(true), "engine", Warn, "4.3"},
		{"Podman's GPUs", podman(func(*engineFacts) {}).judge(true), "CDI", OK, "described"},
		{"Podman without GPUs", podman(func(f *engineFacts) { f.cdi = false }).judge(true), "CDI", Warn, "nvidia-ctk cdi generate"},
		{"rootless Podman", podman(func(f *engineFacts) { f.rootless = true }).judge(false), "rootless", Warn, "this user's"},
		{"rootless Podman without cgroups", podman(func(f *engineFacts) {
			f.rootless, f.info.CgroupVersion = true, "1"
		}).judge(false), "rootless", Fail, "unified_cgroup_hierarchy"},
		{"Podman without events", podman(func(f *engineFacts) { f.events = errGone }).judge(false), "events", Warn, "events_logger"},
		{"no runtime", engine(func(f *engineFacts) { f.info.Runtimes = nil }).judge(true), "NVIDIA runtime", Warn, "nvidia-ctk"},

		{"channels without a GPU", channelsFacts{spec: "auto"}.judge(), "here", Skip, "no NVIDIA GPU"},
		{"channels of a simulated GPU", channelsFacts{spec: "sim:/x"}.judge(), "simulated GPU", OK, "slices"},
		{"clients of MPS", channelsFacts{spec: "sim:/x", gpus: []device.GPU{{Processes: []device.Process{{PID: 1}}}, {Index: 1, Processes: []device.Process{{PID: 2, MPS: true}, {PID: 3}}}}}.judge(),
			"MPS on GPU 1", Warn, "MPS server: 1"},
		{"use by the trace", deviceFacts{spec: "auto", gpus: []device.GPU{gpu("580.1")}, untraced: map[string]error{gpu("580.1").UUID: nil}}.judge(), "use of GPU 0", OK, "trace of context switches"},
		{"use by samples", deviceFacts{spec: "auto", gpus: []device.GPU{gpu("580.1")}, untraced: map[string]error{gpu("580.1").UUID: errGone}}.judge(), "use of GPU 0", OK, "a sixth"},
		{"channels without the device", channelsFacts{spec: "auto", control: errGone, cards: []cardFacts{{}}}.judge(), "here", Warn, "paused instead"},
		{"channels not tested", channelsFacts{spec: "auto", cards: []cardFacts{{GPU: gpu("580.1")}}}.judge(), "GPU 0", OK, "not tested yet"},
		{"channels not readable", channelsFacts{spec: "auto", cards: []cardFacts{{GPU: gpu("580.1"), err: fs.ErrPermission}}}.judge(), "GPU 0", Skip, "sudo"},
		{"channels proven", card(selftest.Result{Switch: true, Slices: true, Off: 800 * time.Microsecond}).judge(), "GPU 0", OK, "off in 0.8 ms"},
		{"channels do not work", card(selftest.Result{Switch: true, Reason: "slices are inert"}).judge(), "GPU 0", Warn, "slices are inert"},

		{"root", rights(func(*rightsFacts) {}).judge(), "capabilities", OK, "all"},
		{"a user", rights(func(f *rightsFacts) { f.caps, f.uid = 0, 1000 }).judge(), "capabilities", Warn, "sudo"},
		{"SYS_ADMIN for BPF", rights(func(f *rightsFacts) { f.caps &^= 1<<unix.CAP_BPF | 1<<unix.CAP_PERFMON }).judge(), "capabilities", OK, "all"},
		{"neither", rights(func(f *rightsFacts) { f.caps &^= 1<<unix.CAP_BPF | 1<<unix.CAP_SYS_ADMIN }).judge(), "capabilities", Warn, "CAP_BPF"},
		{"container", rights(func(f *rightsFacts) { f.pidNS = 1 }).judge(), "PID namespace", Fail, "--pid=host"},
		{"no pidfd", rights(func(f *rightsFacts) { f.pidfd = errGone }).judge(), "pidfd", Fail, "5.3"},

		{"no uprobes", kernelFacts{sensors: []detect.Finding{{Source: task.SourceUprobe, Err: errGone}}}.judge(), "sensor uprobe", Warn, "busy"},
		{"no ends", kernelFacts{sensors: []detect.Finding{{Source: task.SourcePidfd, Err: errGone}}}.judge(), "sensor pidfd", Fail, "does not start"},
		{"no memory guard", kernelFacts{others: []ability{{"memory guard", limitsWatched, errGone}}}.judge(), "memory guard", Warn, "is watched"},
		{"no swapping", kernelFacts{others: swap(t.Context(), Options{Swap: func(context.Context) error { return errGone }}, deviceFacts{gpus: []device.GPU{gpu("580.1")}})}.judge(), "swapping", Warn, "never swapped"},
		{"lockdown", kernelFacts{lockdown: "integrity"}.judge(), "release", Warn, "Secure Boot"},

		{"exporter away", exporterFacts{at: at, err: errGone}.judge(), "running", Skip, "laxity up"},
		{"exporter away where it was said to be", exporterFacts{at: given, err: errGone}.judge(), "running", Fail, "refused"},
		{"exporter well", snapshot(func(*task.Snapshot) {}).judge(), "GPUs", OK, "answer"},
		{"device down", snapshot(func(s *task.Snapshot) { s.Health.DeviceUp = false }).judge(), "GPUs", Fail, "nvidia-smi"},
		{"stale", snapshot(func(s *task.Snapshot) { s.Age = 60 }).judge(), "GPUs", Fail, "1m0s"},
		{"clock ahead", snapshot(func(s *task.Snapshot) { s.Time = now.Add(time.Minute) }).judge(), "GPUs", Warn, "NTP"},
		{"engine down", snapshot(func(s *task.Snapshot) { s.Health.EngineUp = false }).judge(), "containers", Fail, "socket"},
		{"polling", snapshot(func(s *task.Snapshot) { s.Health.Sensor = task.SourceDevice }).judge(), "sensor", Warn, "Permissions"},
		{"bad label", snapshot(func(s *task.Snapshot) {
			s.Containers = []task.Container{{Name: "web", Invalid: []task.InvalidLabel{{Label: "laxity.deadline", Value: "soon", Hint: "write 9s"}}}}
		}).judge(), "labels", Warn, "write 9s"},

		{"actuator away", actuatorFacts{at: at, err: errGone}.judge(), "running", Skip, "laxity up"},
		{"actuator well", acting(func(*state.State) {}).judge(), "acting", OK, "ready"},
		{"standby", acting(func(s *state.State) { s.Standby = "other" }).judge(), "acting", Warn, "stands by"},
		{"breaker", acting(func(s *state.State) { s.Breaker = "storm" }).judge(), "acting", Warn, "--breaker.actions"},
		{"a damaged file", acting(func(s *state.State) { s.PutAside = []string{"inbox.db.damaged-1"} }).judge(), "state", Warn, "inbox.db.damaged-1"},
		{"not ready", acting(func(s *state.State) { s.Ready, s.Trouble = false, "no exporter" }).judge(), "acting", Fail, "no exporter"},
		{"dry run", acting(func(s *state.State) { s.DryRun = true }).judge(), "acting", Warn, "--dry-run"},
		{"dry run, no guardian", acting(func(s *state.State) { s.DryRun, s.GuardianUp = true, false }).judge(), "guardian", OK, "not needed"},
		{"wrong token", func() actuatorFacts { f := acting(func(*state.State) {}); f.may = wrongToken; return f }().judge(), "token", Fail, "--web.bearer-token-file"},
		{"no token", func() actuatorFacts { f := acting(func(*state.State) {}); f.may = noToken; return f }().judge(), "token", Warn, "unless it is named"},
		{"another machine", func() actuatorFacts { f := acting(func(*state.State) {}); f.may = notHere; return f }().judge(), "token", Warn, "laxity-actuator token"},
		{"token", func() actuatorFacts { f := acting(func(*state.State) {}); f.may = mayAct; return f }().judge(), "token", OK, "may change"},
		{"never", acting(func(s *state.State) { s.Arbitrate = config.Never }).judge(), "acting", Warn, "--arbitrate=auto"},
		{"limits kept", acting(func(*state.State) {}).judge(), "GPU memory", OK, "denied"},
		{"by channels", acting(func(s *state.State) { s.Hold = config.HoldChannels }).judge(), "holding", OK, "slices"},
		{"by channels, proven", acting(func(s *state.State) {
			s.Hold, s.ChannelsProven, s.SeveralGPUs = config.HoldChannels, "GPU 0: the self-test took a kernel off", config.SeveralNever
		}).judge(), "holding", OK, "because GPU 0: the self-test took a kernel off; containers on several GPUs: --several-gpus=never"},
		{"by pause, as wanted", acting(func(s *state.State) { s.Hold = config.HoldPause }).judge(), "holding", OK, "--hold"},
		{"by pause instead", acting(func(s *state.State) { s.Hold, s.NoChannels = config.HoldPause, "driver 470" }).judge(), "holding", Warn, "driver 470"},
		{"only limits", acting(func(*state.State) {}).judge(), "GPU memory", OK, "--memory-share=limit"},
		{"a divided card", acting(func(s *state.State) { s.MemoryShare = allocator.Fair }).judge(), "GPU memory", OK, "--memory-share=fair"},
		{"several GPUs", acting(func(s *state.State) {
			s.Containers = []state.Container{{Name: "b", LeftAsItIs: state.BySeveral}, {Name: "a", LeftAsItIs: state.BySeveral}}
		}).judge(), "left as they are (several_gpus)", Warn, "a, b"},
		{"labels of a gang", acting(func(s *state.State) {
			s.Containers = []state.Container{{Name: "a", LeftAsItIs: state.ByConflict}}
		}).judge(), "left as they are (labels)", Warn, "the same labels"},
		{"many left as they are", acting(func(s *state.State) {
			for _, name := range []string{"f", "e", "d", "c", "b", "a"} {
				s.Containers = append(s.Containers, state.Container{Name: name, LeftAsItIs: state.ByMPS})
			}
		}).judge(), "left as they are (mps)", Warn, "a, b, c, d, e, …"},
		{"one unguarded", acting(func(s *state.State) {
			s.Containers = []state.Container{{Name: "a", MemoryUnguarded: "no symbols"}}
		}).judge(), "limit of GPU memory", Warn, "a: no symbols"},
		{"shares beyond the GPU", acting(func(s *state.State) { s.GPUs = []state.GPU{{UUID: "GPU-a", Unkept: "115 %"}} }).judge(), "shares of GPU-a", Warn, "--batch-floor"},
		{"limits watched", acting(func(s *state.State) { s.MemoryGuard = "no CAP_BPF" }).judge(), "GPU memory", Warn, "no CAP_BPF"},
		{"limits not kept", acting(func(s *state.State) { s.MemoryGuard = "off" }).judge(), "GPU memory", OK, "--memory-guard=off"},
		{"swapping", acting(func(s *state.State) { s.Swap = true }).judge(), "swapping", OK, "can be"},
		{"no swapping", acting(func(*state.State) {}).judge(), "swapping", OK, "--swap=off"},
		{"the guardian's unit is too tight", acting(func(s *state.State) {
			s.Lacks = []state.Lack{{Of: "guardian", What: "pidfd_getfd is refused", Fix: "SystemCallFilter=pidfd_getfd"}}
		}).judge(), "sandbox of the guardian", Warn, "SystemCallFilter="},
		{"no guardian", acting(func(s *state.State) { s.GuardianUp = false }).judge(), "guardian", Warn, "--guardian=spawn"},

		{"no nodes", nodesFacts{}.judge(), "nodes.yaml", Skip, "--nodes.file"},
		{"bad nodes", nodesFacts{file: "n.yaml", err: errGone}.judge(), "nodes.yaml", Fail, "refused"},
		{"node away", nodesFacts{file: "n", list: nodes.List{{Name: "a"}}, answers: []answer{{exporter: errGone}}}.judge(), "a", Fail, "http_config"},
		{"node without engine", nodesFacts{file: "n", list: nodes.List{{Name: "a", Exporter: "http://a"}}, answers: []answer{{}}}.judge(), "a", Warn, "ssh://"},
		{"node", nodesFacts{file: "n", list: nodes.List{{Name: "a", Exporter: "http://a", Docker: nodes.Docker{Context: "a"}}}, answers: []answer{{}}}.judge(), "a", OK, "answers"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { expect(t, tt.got, tt.about, tt.level, tt.word) })
	}
}

func expect(t *testing.T, got []Finding, about string, level Level, word string) {
	t.Helper()
	for _, f := range got {
		if f.Name != about {
			continue
		}
		if text := f.Found + " " + f.Means + " " + f.Fix; f.Level != level || !strings.Contains(text, word) {
			t.Errorf("%s is %s, %q; want %s with %q", about, f.Level, text, level, word)
		}
		return
	}
	t.Errorf("nothing about %s in %+v", about, got)
}

func TestPrometheus(t *testing.T) {
	own, err := ownRules()
	if err != nil || len(own) < 20 {
		t.Fatalf("%d rules, %v", len(own), err)
	}
	up := func(job string) target {
		return target{Labels: map[string]string{"job": job, "node": "n"}, Health: "up"}
	}
	well := func() prometheusFacts {
		f := prometheusFacts{at: at, ours: own, alertmanagers: 1, targets: []target{up("laxity-exporter"), up("laxity-actuator")}}
		f.loaded = append(f.loaded, own...)
		return f
	}
	tests := []struct {
		name   string
		change func(*prometheusFacts)
		about  string
		level  Level
		word   string
	}{
		{"well", func(*prometheusFacts) {}, "rules", OK, fmt.Sprint(len(own))},
		{"written otherwise", func(f *prometheusFacts) {
			f.loaded[0].Query = " ( " + f.loaded[0].Query + " ) "
			f.loaded[1].Query += " # and a comment"
		}, "rules current", Warn, own[0].Name}, // parentheses are another expression, a comment is not
		{"none", func(f *prometheusFacts) { f.loaded = nil }, "rules loaded", Fail, "rule_files"},
		{"one missing", func(f *prometheusFacts) { f.loaded = f.loaded[:len(f.loaded)-1] }, "rules loaded", Fail, own[len(own)-1].Name},
		{"another version", func(f *prometheusFacts) { f.loaded[3].Query = "vector(1)" }, "rules current", Warn, own[3].Name},
		{"broken", func(f *prometheusFacts) {
			f.loaded = append([]rule(nil), f.loaded...)
			f.loaded[2].Health, f.loaded[2].LastError = "err", "many-to-many"
		}, "rules evaluated", Fail, "many-to-many"},
		{"no Alertmanager", func(f *prometheusFacts) { f.alertmanagers = 0 }, "alerting", Fail, "alertmanagers"},
		{"no job", func(f *prometheusFacts) { f.targets = f.targets[:1] }, "laxity-actuator", Fail, "job"},
		{"target down", func(f *prometheusFacts) { f.targets[0].Health, f.targets[0].LastError = "down", "refused" }, "laxity-exporter", Fail, "refused"},
		{"not scraped yet", func(f *prometheusFacts) { f.targets[0].Health = "unknown" }, "laxity-exporter", Warn, "not scraped yet"},
		{"no node", func(f *prometheusFacts) { f.targets[0].Labels = map[string]string{"job": "laxity-exporter"} }, "laxity-exporter", Fail, "relabel"},
		{"away", func(f *prometheusFacts) { f.err = errGone }, "running", Skip, "compose"},
		{"flags well", func(f *prometheusFacts) {
			f.flags, f.slowest = map[string]string{"rules.alert.resend-delay": "5s", "enable-feature": "native-histograms"}, time.Second
		}, "flags", OK, "should"},
		{"rules seldom", func(f *prometheusFacts) { f.slowest = time.Minute }, "evaluation interval", Warn, "evaluation_interval"},
		{"scraped seldom", func(f *prometheusFacts) { f.targets[0].Interval = "1m" }, "scrape interval", Warn, "scrape_interval"},
		{"stock", func(f *prometheusFacts) { f.flags = map[string]string{"rules.alert.resend-delay": "1m"} }, "--rules.alert.resend-delay", Warn, "4m0s"},
		{"no native histograms", func(f *prometheusFacts) {
			f.flags, f.slowest = map[string]string{"rules.alert.resend-delay": "5s", "enable-feature": ""}, time.Second
		}, "flags", OK, "should"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := well()
			tt.change(&f)
			expect(t, f.judge(), tt.about, tt.level, tt.word)
		})
	}
}

func TestLockdown(t *testing.T) {
	for text, want := range map[string]string{"none [integrity] confidentiality\n": "integrity", "[none] integrity": "none", "": ""} {
		if got := lockdown(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestEffective(t *testing.T) {
	if caps, err := effective([]byte("Name:\tx\nCapEff:\t000001ffffffffff\n")); err != nil || caps != allCaps {
		t.Errorf("%x, %v", caps, err)
	}
	if _, err := effective([]byte("Name: x\n")); err == nil {
		t.Error("no error without CapEff")
	}
}

func TestSummary(t *testing.T) {
	got := Summary([]Finding{{Level: OK}, {Level: Warn}, {Level: Warn}, {Level: Fail}})
	if got != "1 ok, 2 warnings, 1 failure, 0 not examined; fix the failures first" {
		t.Error(got)
	}
	if Failed([]Finding{{Level: Warn}, {Level: Skip}}) || !Failed([]Finding{{Level: Fail}}) {
		t.Error("only a failure fails")
	}
}

func TestWriter(t *testing.T) {
	var b strings.Builder
	w := Writer{Out: &b, Width: 60}
	w.Write(Finding{Area: "Docker", Name: "engine", Level: Fail, Found: "connection refused at unix:///var/run/docker.sock, again and again", Means: "nothing", Fix: "start it"})
	w.Write(Finding{Area: "Docker", Name: "cgroup", Level: OK, Found: "version 2"})
	want := `Docker
  FAIL engine              connection refused at
                            unix:///var/run/docker.sock,
                            again and again
                            means: nothing
                            fix:   start it
  ok   cgroup              version 2
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}
