// Package needtest skips tests that need something this machine does not have. Where the machine
// must have it, it fails them instead: CI lists what it installs in LAXITY_REQUIRE, so that no test
// stops running there unnoticed.
//
// For tests only. It imports the standard library.
package needtest

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// Need is something that a test needs and not every machine has.
type Need string

// The needs, by their names in LAXITY_REQUIRE.
const (
	BPF        Need = "bpf"        // uprobes and tracepoints by BPF, the kernel's types (BTF), and the right to use them
	Cgroup     Need = "cgroup"     // control groups of version 2, and the right to make some
	Chromium   Need = "chromium"   // or Chrome
	Clang      Need = "clang"      // with llvm-strip and libbpf's headers
	Compiler   Need = "compiler"   // of C
	Compose    Need = "compose"    // Docker Compose 2
	Containerd Need = "containerd" // with runc, and root to start one
	Docker     Need = "docker"     // an engine that answers, and its command
	Fanotify   Need = "fanotify"   // and the right to use it
	Fish       Need = "fish"       // the shell
	GPU        Need = "gpu"        // one of NVIDIA, with its driver
	GPUs       Need = "gpus"       // two of them
	Kubernetes Need = "kubernetes" // its scheduler (make .tools/kube-scheduler)
	Namespaces Need = "namespaces" // of the network and of mounts
	Packages   Need = "packages"   // dpkg, rpm, systemd-analyze, and what makes packages (make .tools/release)
	Podman     Need = "podman"     // and the right to start one of the test's own
	Prometheus Need = "prometheus" // with promtool, Alertmanager and amtool
	Python     Need = "python3"
	QEMU       Need = "qemu" // qemu-user, for programs of other processors
	Root       Need = "root"
	SSH        Need = "ssh"     // client and server
	Systemd    Need = "systemd" // that can run in a container of its own
	Tracing    Need = "tracing" // ptrace
	Terminal   Need = "terminal"
	Zsh        Need = "zsh" // the shell
)

// Variable names the environment variable that lists, separated by commas, what this machine must
// have; "all but gpu,…" is everything except what follows.
const Variable = "LAXITY_REQUIRE"

// All lists every need.
var All = []Need{BPF, Cgroup, Chromium, Clang, Compiler, Compose, Containerd, Docker, Fanotify, Fish, GPU, GPUs, Kubernetes, Namespaces, Packages, Podman, Prometheus, Python, QEMU, Root, SSH,
	Systemd, Terminal, Tracing, Zsh}

// Skip skips the test, with a reason as for testing.TB's Skip. If LAXITY_REQUIRE names the need,
// the test fails instead.
func (n Need) Skip(tb testing.TB, reason ...any) {
	tb.Helper()
	n.skip(tb, strings.TrimSuffix(fmt.Sprintln(reason...), "\n"))
}

// Skipf is Skip with a format.
func (n Need) Skipf(tb testing.TB, format string, args ...any) {
	tb.Helper()
	n.skip(tb, fmt.Sprintf(format, args...))
}

func (n Need) skip(tb testing.TB, reason string) {
	tb.Helper()
	required, err := parse(os.Getenv(Variable))
	switch {
	case err != nil:
		tb.Fatal(err)
	case slices.Contains(required, n):
		tb.Fatalf("%s says that %s is here: %s", Variable, n, reason)
	}
	tb.Skip(reason)
}

// parse reads LAXITY_REQUIRE.
func parse(list string) (required []Need, err error) {
	list, allBut := strings.CutPrefix(list, "all but ")
	for name := range strings.SplitSeq(list, ",") {
		n := Need(strings.TrimSpace(name))
		switch {
		case n == "":
		case !slices.Contains(All, n):
			return nil, fmt.Errorf("%s names %q; there are %v", Variable, n, All)
		default:
			required = append(required, n)
		}
	}
	if allBut {
		return slices.DeleteFunc(slices.Clone(All), func(n Need) bool { return slices.Contains(required, n) }), nil
	}
	return required, nil
}
