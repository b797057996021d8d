package container_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/laxity/laxity/exporter/container"
)

var (
	idA = strings.Repeat("0123456789abcdef", 4)
	idB = strings.Repeat("fedcba9876543210", 4)
)

func TestParseCgroup(t *testing.T) {
	tests := []struct {
		name string
		data string
		want string // "" means none
	}{
		{"v1 cgroupfs", "12:pids:/docker/" + idA + "\n1:name=systemd:/docker/" + idA + "\n0::/\n", idA},
		{"v1 second line only", "9:name=systemd:/\n8:pids:/docker/" + idA + "\n", idA},
		{"v1 systemd", "4:memory:/system.slice/docker-" + idA + ".scope\n", idA},
		{"v2 cgroupfs", "0::/docker/" + idA + "\n", idA},
		{"v2 systemd", "0::/system.slice/docker-" + idA + ".scope\n", idA},
		{"v2 rootless", "0::/user.slice/user-1000.slice/user@1000.service/user.slice/docker-" + idA + ".scope\n", idA},
		{"v2 own cgroup parent", "0::/batch.slice/docker-" + idA + ".scope\n", idA},
		{"v2 without newline", "0::/docker/" + idA, idA},
		{"podman", "0::/machine.slice/libpod-" + idA + ".scope/container\n", idA},
		{"podman without systemd", "0::/libpod_parent/libpod-" + idA + "\n", idA},
		{"podman without systemd, v1", "9:name=systemd:/libpod_parent/libpod-" + idA + "\n6:freezer:/libpod_parent/libpod-" + idA + "\n", idA},
		{"podman pod", "0::/machine.slice/machine-libpod_pod_" + idB + ".slice/libpod-" + idA + ".scope/container\n", idA},
		{"podman pod without systemd", "0::/libpod_parent/" + idB + "/libpod-" + idA + "\n", idA},
		{"podman rootless", "0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + idA + ".scope/container\n", idA},
		{"podman rootless, v1", "6:freezer:/\n1:name=systemd:/user.slice/user-1000.slice/session-2.scope\n", ""},
		{"group below the container, like a pod", "0::/docker/" + idA + "/libpod_parent/" + idB + "/libpod-" + idB + "\n", idA},
		{"podman monitors without systemd", "6:freezer:/libpod_parent/conmon\n", ""},
		{"podman monitor", "0::/machine.slice/libpod-conmon-" + idA + ".scope\n", ""},
		{"cri-o monitor", "0::/kubepods.slice/crio-conmon-" + idA + ".scope\n", ""},
		{"monitor above a container", "0::/libpod-conmon-" + idA + ".scope/libpod-" + idB + ".scope\n", idB},
		{"kubernetes containerd", "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod7c1.slice/cri-containerd-" + idA + ".scope\n", idA},
		{"kubernetes cri-o", "0::/kubepods.slice/kubepods-pod7c1.slice/crio-" + idA + ".scope/container\n", idA},
		{"kubernetes cgroupfs", "5:cpu:/kubepods/besteffort/pod2f1c4c7e-9e04-4c62-b5b3-2a3bbe2cfd5e/" + idA + "\n", idA},
		{"kubernetes with colons", "1:name=systemd:/system.slice/containerd.service/kubepods-pod7c1.slice:cri-containerd:" + idA + "\n", idA},
		{"cri cgroupfs v2, guaranteed", "0::/kubepods/pod2f1c4c7e-9e04-4c62-b5b3-2a3bbe2cfd5e/" + idA + "\n", idA},
		{"cri cgroupfs v1, burstable", "6:freezer:/kubepods/burstable/pod2f1c4c7e/" + idA + "\n0::/\n", idA},
		{"cri without a parent", "6:freezer:/k8s.io/" + idA + "\n0::/k8s.io/" + idA + "\n", idA},
		{"cri systemd v1", "6:freezer:/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod7c1.slice/cri-containerd-" + idA + ".scope\n", idA},
		{"cri systemd driver, parent without it", "0::/system.slice/kubepods-besteffort-pod7c1.slice:cri-containerd:" + idA + "\n", idA},
		{"k3s", "0::/system.slice/k3s.service/kubepods/burstable/pod7c1/" + idA + "\n", idA},
		{"cri, pod uid without dashes", "0::/kubepods/pod" + strings.Repeat("ab", 16) + "/" + idA + "\n", idA},
		{"nerdctl cgroupfs", "0::/default/" + idA + "\n", idA},
		{"nerdctl systemd", "0::/system.slice/nerdctl-" + idA + ".scope\n", idA},
		{"a pod's own group", "0::/kubepods.slice/kubepods-pod7c1.slice\n", ""},
		{"private cgroup namespace", "0::/../" + idA + "\n", idA},
		{"private cgroup namespace, systemd", "0::/../docker-" + idA + ".scope\n", idA},
		{"private cgroup namespace, itself", "0::/\n", ""},
		{"private cgroup namespace, host process", "0::/../../../init.scope\n", ""},
		{"group below the container", "0::/docker/" + idA + "/" + idB + "\n", idA},
		{"container in a container", "0::/docker/" + idA + "/docker/" + idB + "\n", idA},
		{"removed group", "0::/docker/" + idA + " (deleted)\n", idA},
		{"v1 zombie", "3:pids:/\n2:cpu:/\n0::/\n", ""},
		{"host service", "0::/system.slice/ssh.service\n", ""},
		{"too short", "0::/docker/" + idA[1:] + "\n", ""},
		{"too long", "0::/docker/" + idA + "0\n", ""},
		{"upper case", "0::/docker/" + strings.ToUpper(idA) + "\n", ""},
		{"part of a word", "0::/docker/x" + idA + "\n", ""},
		{"continued by a word", "0::/docker/" + idA + "_x\n", ""},
		{"id in the controllers", "1:" + idA + ":/\n", ""},
		{"no path", "0:" + idA + "\n", ""},
		{"empty", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := container.ParseCgroup([]byte(tt.data))
			if got != tt.want || ok != (tt.want != "") {
				t.Errorf("ParseCgroup(%q) = %q, %v; want %q", tt.data, got, ok, tt.want)
			}
		})
	}
}

func FuzzParseCgroup(f *testing.F) {
	f.Add([]byte("0::/system.slice/docker-" + idA + ".scope\n"))
	f.Add([]byte("4:memory:/docker/" + idA + "/" + idB + "\n0::/\n"))
	f.Add([]byte("0::/libpod-conmon-" + idA + ".scope"))
	f.Add([]byte(":::\n\n::"))
	shape := regexp.MustCompile(`^[0-9a-f]{64}$`)
	f.Fuzz(func(t *testing.T, data []byte) {
		id, ok := container.ParseCgroup(data)
		switch {
		case ok != (id != ""):
			t.Errorf("id %q with ok %v", id, ok)
		case ok && !shape.MatchString(id):
			t.Errorf("not an id: %q", id)
		case ok && !strings.Contains(string(data), id):
			t.Errorf("made up: %q", id)
		}
	})
}

func BenchmarkParseCgroup(b *testing.B) {
	data := []byte("0::/system.slice/docker-" + idA + ".scope\n")
	b.ReportAllocs()
	for b.Loop() {
		container.ParseCgroup(data)
	}
}
