package compose_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/client"
	"github.com/docker/docker/pkg/stdcopy"
	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/internal/needtest"
	"github.com/laxity/laxity/internal/sandbox"
)

// probing is a Docker engine with an image of the program that tries what a sandbox lets
// through.
type probing struct {
	*testing.T
	docker *client.Client
	image  string
	old    bool   // before 23: it does not know CAP_BPF and CAP_PERFMON
	bpf    string // a folder of the host's BPF file system, for actuator and guardian
	tenant int    // a process of another user in a container, by its PID here
}

func newProbing(t *testing.T) *probing {
	t.Helper()
	if testing.Short() {
		t.Skip("builds a program and runs it in containers")
	}
	if os.Geteuid() != 0 {
		needtest.Root.Skip(t, "what a sandbox lets root do is tried by root")
	}
	p := &probing{T: t}
	var err error
	if p.docker, err = client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.docker.Close() })
	version, err := p.docker.ServerVersion(t.Context())
	if err != nil {
		needtest.Docker.Skipf(t, "needs a Docker engine: %v", err)
	}
	major, _, _ := strings.Cut(version.Version, ".")
	n, err := strconv.Atoi(major)
	p.old = err == nil && n < 23
	name := "laxity-test-" + strings.ToLower(rand.Text()[:8])
	p.build(name)
	p.bpf = bpfFolder(t)
	id := p.start(&container.Config{Image: p.image, Cmd: []string{"/inside", "sleep"}, User: "65534:65534"},
		&container.HostConfig{NetworkMode: "none", CapDrop: []string{"ALL"}, ReadonlyRootfs: true})
	c, err := p.docker.ContainerInspect(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	p.tenant = c.State.Pid
	return p
}

// bpfFolder names a folder of the host's BPF file system, which is removed when the test ends. Docker makes it.
func bpfFolder(t *testing.T) string {
	t.Helper()
	var at unix.Statfs_t
	if err := unix.Statfs("/sys/fs/bpf", &at); err != nil || at.Type != unix.BPF_FS_MAGIC {
		// systemd mounts it, and not every machine of CI has that.
		if err := unix.Mount("bpf", "/sys/fs/bpf", "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700"); err != nil {
			needtest.BPF.Skipf(t, "no BPF file system at /sys/fs/bpf, and none can be mounted: %v", err)
		}
	}
	folder := "/sys/fs/bpf/laxity-test-" + strings.ToLower(rand.Text()[:8])
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return folder
}

// build makes the image.
func (p *probing) build(name string) {
	p.Helper()
	binary := filepath.Join(p.TempDir(), "inside")
	cmd := exec.CommandContext(p.Context(), "go", "build", "-o", binary, "../package/inside")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		p.Fatalf("go build: %v\n%s", err, out)
	}
	code, err := os.ReadFile(binary)
	if err != nil {
		p.Fatal(err)
	}
	var root bytes.Buffer
	w := tar.NewWriter(&root)
	if err = w.WriteHeader(&tar.Header{Name: "inside", Mode: 0o755, Size: int64(len(code))}); err == nil {
		if _, err = w.Write(code); err == nil {
			err = w.Close()
		}
	}
	if err != nil {
		p.Fatal(err)
	}
	p.image = name
	body, err := p.docker.ImageImport(p.Context(), image.ImportSource{Source: &root, SourceName: "-"}, name, image.ImportOptions{})
	if err != nil {
		p.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, body)
	_ = body.Close()
	p.Cleanup(func() {
		_, _ = p.docker.ImageRemove(context.Background(), name, image.RemoveOptions{Force: true})
	})
}

// start starts a container, which is removed when the test ends.
func (p *probing) start(c *container.Config, host *container.HostConfig) (id string) {
	p.Helper()
	made, err := p.docker.ContainerCreate(p.Context(), c, host, nil, nil, "laxity-test-"+strings.ToLower(rand.Text()[:8]))
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() {
		_ = p.docker.ContainerRemove(context.Background(), made.ID, container.RemoveOptions{Force: true})
	})
	if err := p.docker.ContainerStart(p.Context(), made.ID, container.StartOptions{}); err != nil {
		p.Fatal(err)
	}
	return made.ID
}

// probed is what the program found.
type probed struct {
	Said  map[string]string
	Lacks []sandbox.Lack
}

// try runs the program with the rights of a service, without some of its capabilities.
func (p *probing) try(who string, sv service, without ...string) (found probed) {
	p.Helper()
	host := &container.HostConfig{
		NetworkMode: "none", PidMode: container.PidMode(sv.PID), CgroupnsMode: container.CgroupnsMode(sv.Cgroup), CapDrop: sv.CapDrop,
		SecurityOpt: sv.Security, ReadonlyRootfs: sv.ReadOnly,
		Binds: []string{p.bpf + ":/sys/fs/bpf"}, // Docker makes the folder, as for the stack
		Mounts: []mount.Mount{
			{Type: mount.TypeBind, Source: p.TempDir(), Target: "/run/laxity"},
			{Type: mount.TypeBind, Source: p.TempDir(), Target: "/var/lib/laxity/actuator"},
		},
		// What NVIDIA's runtime does, and nobody is behind it.
		Resources: container.Resources{Devices: []container.DeviceMapping{{PathOnHost: p.device(), PathInContainer: "/dev/nvidiactl", CgroupPermissions: "rw"}}},
	}
	for _, c := range sv.CapAdd {
		if name := regexp.MustCompile(`^\$\{.*:-(.*)\}$`).ReplaceAllString(c, "$1"); !slices.Contains(without, name) {
			if p.old && (name == "BPF" || name == "PERFMON") {
				name = "SYS_ADMIN"
			}
			host.CapAdd = append(host.CapAdd, name)
		}
	}
	id := p.start(&container.Config{Image: p.image, Cmd: []string{"/inside", who, strconv.Itoa(p.tenant), "/proc"}}, host)
	ended, failed := p.docker.ContainerWait(p.Context(), id, container.WaitConditionNotRunning)
	select {
	case <-ended:
	case err := <-failed:
		p.Fatal(err)
	case <-time.After(patience):
		p.Fatal("the program does not end")
	}
	logs, err := p.docker.ContainerLogs(p.Context(), id, container.LogsOptions{ShowStdout: true, ShowStderr: true})
	if err != nil {
		p.Fatal(err)
	}
	defer logs.Close()
	var out, said bytes.Buffer
	if _, err := stdcopy.StdCopy(&out, &said, logs); err != nil {
		p.Fatal(err)
	}
	if err := json.Unmarshal(out.Bytes(), &found); err != nil {
		p.Fatalf("%v: %s %s", err, &out, &said)
	}
	return found
}

// device makes a file of NVIDIA's control device.
func (p *probing) device() string {
	p.Helper()
	path := filepath.Join(p.TempDir(), "nvidiactl")
	if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(195, 255))); err != nil {
		needtest.Root.Skipf(p, "no device files can be made here: %v", err)
	}
	return path
}

// In containers with the rights that the stack gives to actuator and guardian works what
// they do, under Docker's own seccomp profile.
func TestRightsAreEnough(t *testing.T) {
	p := newProbing(t)
	services, cgroup := read[stack](t, "compose.yaml").Services, read[stack](t, "cgroup.yaml").Services
	both := []string{"open /dev/nvidiactl", "descriptors", "duplicate", "signal", "signal by pidfd", "record"}
	for _, c := range []struct {
		who  string
		want []string
	}{
		{"actuator", append([]string{"probes", "trace", "trace check"}, both...)}, // before the guardian, who reads its record
		{"guardian", both},
	} {
		sv := services[c.who]
		sv.Cgroup = cgroup[c.who].Cgroup
		found := p.try(c.who, sv)
		for _, name := range c.want {
			if found.Said[name] != "ok" {
				t.Errorf("%s: %s: %q", c.who, name, found.Said[name])
			}
		}
		for _, name := range []string{"open another device", "make a device", "change the kernel", "write to /usr", "load a module"} {
			if got := found.Said[name]; got == "ok" || got == "" { // "": it was not tried
				t.Errorf("%s: %s is let through (%q)", c.who, name, got)
			}
		}
		if len(found.Lacks) > 0 {
			t.Errorf("%s lacks %v", c.who, found.Lacks)
		}
	}
}

// Docker's profile refuses pidfd_getfd without CAP_SYS_PTRACE; the programs say what to do.
func TestWithoutPtraceNoDescriptorIsDuplicated(t *testing.T) {
	p := newProbing(t)
	for _, who := range []string{"actuator", "guardian"} {
		found := p.try(who, read[stack](t, "compose.yaml").Services[who], "SYS_PTRACE")
		if got := found.Said["duplicate"]; got == "ok" || got == "" {
			t.Errorf("%s duplicates descriptors without CAP_SYS_PTRACE (%q)", who, got)
		}
		if !slices.ContainsFunc(found.Lacks, func(l sandbox.Lack) bool { return strings.Contains(l.Fix, "--cap-add SYS_PTRACE") }) {
			t.Errorf("%s says that it lacks %v", who, found.Lacks)
		}
	}
}

// gpu.yaml gives the three the GPU, and no more than that.
func TestGPUOverride(t *testing.T) {
	over := read[struct{ Services map[string]map[string]any }](t, "gpu.yaml").Services
	if len(over) != 3 {
		t.Errorf("%v", over)
	}
	for name, capabilities := range map[string]string{"actuator": "compute,utility", "guardian": "compute,utility", "exporter": "utility"} {
		sv := over[name]
		env, _ := sv["environment"].(map[string]any)
		if len(sv) != 2 || sv["runtime"] != "nvidia" || env["NVIDIA_VISIBLE_DEVICES"] != "all" || env["NVIDIA_DRIVER_CAPABILITIES"] != capabilities {
			t.Errorf("%s: %v", name, sv)
		}
	}
}
