package swarm

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/swarm"
	"github.com/docker/docker/client"

	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/internal/needtest"
)

// fleet is several Docker engines on this machine, each in a network and UTS
// namespace of its own, all on one bridge, which has a namespace too, so that
// this machine's firewall has no say.
type fleet struct {
	t      *testing.T
	dir    string
	prefix string
	net    string // the first three numbers of the addresses
	hub    string // namespace of the bridge
}

// engine is one of them.
type engine struct {
	*client.Client
	name, address string
	cmd           *exec.Cmd
	ended         chan struct{}
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	if os.Getuid() != 0 {
		needtest.Root.Skip(t, "a swarm of several engines on one machine needs root")
	}
	for _, program := range []string{"ip", "dockerd", "nsenter", "unshare", "hostname"} {
		if _, err := exec.LookPath(program); err != nil {
			needtest.Namespaces.Skipf(t, "no program %s here", program)
		}
	}
	if testing.Short() {
		t.Skip("three Docker engines take half a minute")
	}
	id := os.Getpid() % 60000
	f := &fleet{t: t, prefix: fmt.Sprintf("laxity-test-%d", id), net: fmt.Sprintf("10.%d.%d", 200+id/250%50, id%250)}
	// A short path: sockets have at most 107 bytes.
	dir, err := os.MkdirTemp("", "lxs")
	if err != nil {
		t.Fatal(err)
	}
	f.dir = dir
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	f.hub = f.prefix + "-hub"
	if err := f.namespace(f.hub); err != nil {
		needtest.Namespaces.Skipf(t, "no network namespaces here: %v", err)
	}
	f.must("ip", "-n", f.hub, "link", "add", "br0", "type", "bridge")
	f.must("ip", "-n", f.hub, "link", "set", "br0", "up")
	return f
}

func (f *fleet) namespace(name string) error {
	out, err := exec.Command("ip", "netns", "add", name).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	f.t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
	return nil
}

func (f *fleet) must(args ...string) {
	f.t.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		f.t.Fatalf("%v: %v: %s", args, err, out)
	}
}

// start starts engine number i, from 1.
func (f *fleet) start(i int) *engine {
	f.t.Helper()
	e := &engine{name: fmt.Sprintf("gpu-%d", i), address: fmt.Sprintf("%s.%d", f.net, i), ended: make(chan struct{})}
	ns := fmt.Sprintf("%s-%d", f.prefix, i)
	if err := f.namespace(ns); err != nil {
		f.t.Fatal(err)
	}
	veth := fmt.Sprintf("v%d", i)
	f.must("ip", "-n", f.hub, "link", "add", veth, "type", "veth", "peer", "name", "eth0", "netns", ns)
	f.must("ip", "-n", f.hub, "link", "set", veth, "master", "br0", "up")
	f.must("ip", "-n", ns, "link", "set", "lo", "up")
	f.must("ip", "-n", ns, "addr", "add", e.address+"/24", "dev", "eth0")
	f.must("ip", "-n", ns, "link", "set", "eth0", "up")
	f.must("ip", "-n", ns, "route", "add", "default", "dev", "eth0")

	dir := filepath.Join(f.dir, fmt.Sprint(i))
	if err := os.Mkdir(dir, 0o700); err != nil {
		f.t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		f.t.Fatal(err)
	}
	defer log.Close()
	host := "unix://" + dir + "/s"
	// Not this machine's configuration.
	config := filepath.Join(dir, "daemon.json")
	if err := os.WriteFile(config, []byte("{}"), 0o600); err != nil {
		f.t.Fatal(err)
	}
	e.cmd = exec.Command("nsenter", "--net=/var/run/netns/"+ns, "unshare", "--uts", "sh", "-c",
		`hostname "$1" && shift && exec "$@"`, "sh", e.name,
		"dockerd", "--config-file="+config, "--data-root="+dir+"/data", "--exec-root="+dir+"/x", "--pidfile="+dir+"/pid", "-H", host,
		"--iptables=false", "--bridge=none", "--storage-driver=vfs")
	e.cmd.Stdout, e.cmd.Stderr = log, log
	// A group of its own: its containerd goes with it.
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := e.cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	go func() { _ = e.cmd.Wait(); close(e.ended) }()
	f.t.Cleanup(func() { f.stop(e, dir) })
	if e.Client, err = client.NewClientWithOpts(client.WithHost(host), client.WithAPIVersionNegotiation()); err != nil {
		f.t.Fatal(err)
	}
	f.await(time.Minute, e.name+" answers", func(ctx context.Context) error {
		select {
		case <-e.ended:
			said, _ := os.ReadFile(log.Name())
			needtest.Namespaces.Skipf(f.t, "dockerd does not run in a namespace here: %s", said[max(0, len(said)-600):])
		default:
		}
		_, err := e.Ping(ctx)
		return err
	})
	return e
}

// stop lets an engine end in order, so that it unmounts what it mounted, and
// cleans up after one that was killed.
func (f *fleet) stop(e *engine, dir string) {
	_ = e.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-e.ended:
	case <-time.After(30 * time.Second):
	}
	e.kill(dir)
	// A killed engine leaves the empty control groups of its containers.
	containers, _ := os.ReadDir(filepath.Join(dir, "data", "containers"))
	for _, c := range containers {
		groups, _ := filepath.Glob("/sys/fs/cgroup/*/docker/" + c.Name())
		for _, g := range groups {
			_ = os.Remove(g)
		}
	}
	mounts, _ := os.ReadFile("/proc/self/mounts")
	for line := range strings.SplitSeq(string(mounts), "\n") {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1], dir+"/") {
			_ = syscall.Unmount(fields[1], syscall.MNT_DETACH)
		}
	}
}

// kill ends the engine as a power cut does, its containers included.
func (e *engine) kill(dir string) {
	_ = e.cmd.Process.Kill()
	<-e.ended
	// What it started has its folder in the command line.
	procs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range procs {
		raw, err := os.ReadFile(p)
		if err != nil || !bytes.Contains(raw, []byte(dir+"/")) {
			continue
		}
		var pid int
		if _, err := fmt.Sscanf(p, "/proc/%d/cmdline", &pid); err == nil && pid != os.Getpid() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

func (f *fleet) await(limit time.Duration, what string, done func(context.Context) error) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), limit)
	defer cancel()
	for {
		err := done(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			f.t.Fatalf("not within %v: %s: %v", limit, what, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// pauseImage is an image with one static program, which does nothing for long.
func (f *fleet) pauseImage(engines ...*engine) {
	f.t.Helper()
	src := filepath.Join(f.dir, "main.go")
	program := "package main\n\nimport (\n\t\"os\"\n\t\"os/signal\"\n\t\"syscall\"\n)\n\nfunc main() {\n\tc := make(chan os.Signal, 1)\n\tsignal.Notify(c, syscall.SIGTERM)\n\t<-c\n}\n"
	if err := os.WriteFile(src, []byte(program), 0o600); err != nil {
		f.t.Fatal(err)
	}
	bin := filepath.Join(f.dir, "pause")
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", bin, src)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		f.t.Fatalf("%v: %s", err, out)
	}
	raw, err := os.ReadFile(bin)
	if err != nil {
		f.t.Fatal(err)
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	err = errors.Join(w.WriteHeader(&tar.Header{Name: "pause", Mode: 0o755, Size: int64(len(raw))}))
	_, werr := w.Write(raw)
	if err := errors.Join(err, werr, w.Close()); err != nil {
		f.t.Fatal(err)
	}
	for _, e := range engines {
		body, err := e.ImageImport(f.t.Context(), image.ImportSource{Source: bytes.NewReader(archive.Bytes()), SourceName: "-"}, "laxity-test-pause:1", image.ImportOptions{})
		if err != nil {
			f.t.Fatal(err)
		}
		_, err = io.Copy(io.Discard, body)
		if err := errors.Join(err, body.Close()); err != nil {
			f.t.Fatal(err)
		}
	}
}

func service(name string, constraints ...string) swarm.ServiceSpec {
	s := swarm.ServiceSpec{}
	s.Name = name
	s.TaskTemplate.ContainerSpec = &swarm.ContainerSpec{Image: "laxity-test-pause:1", Command: []string{"/pause"}}
	s.TaskTemplate.Networks = []swarm.NetworkAttachmentConfig{{Target: "host"}}
	s.TaskTemplate.Placement = &swarm.Placement{Constraints: constraints}
	return s
}

// runsOn waits until a service's task runs, and returns the node's id.
func (f *fleet) runsOn(manager *engine, name string, limit time.Duration, not string) (id string) {
	f.t.Helper()
	f.await(limit, "service "+name+" runs", func(ctx context.Context) error {
		tasks, err := manager.TaskList(ctx, swarm.TaskListOptions{Filters: filters.NewArgs(filters.Arg("service", name), filters.Arg("desired-state", "running"))})
		if err != nil {
			return err
		}
		state := "no task"
		for _, t := range tasks {
			if t.Status.State == swarm.TaskStateRunning && t.NodeID != not {
				id = t.NodeID
				return nil
			}
			state = string(t.Status.State) + " " + t.Status.Err
		}
		return errors.New(state)
	})
	return id
}

// A real swarm of three engines: labels follow the ranking, a service with a
// constraint on them and a placed one run where they should, and a node that dies
// loses its labels and its tasks.
func TestRealSwarm(t *testing.T) {
	f := newFleet(t)
	manager, second, third := f.start(1), f.start(2), f.start(3)
	if _, err := manager.SwarmInit(t.Context(), swarm.InitRequest{ListenAddr: manager.address + ":2377", AdvertiseAddr: manager.address,
		Spec: swarm.Spec{Dispatcher: swarm.DispatcherConfig{HeartbeatPeriod: 5 * time.Second}}}); err != nil {
		t.Fatal(err)
	}
	info, err := manager.SwarmInspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []*engine{second, third} {
		if err := e.SwarmJoin(t.Context(), swarm.JoinRequest{ListenAddr: e.address + ":2377", AdvertiseAddr: e.address,
			RemoteAddrs: []string{manager.address + ":2377"}, JoinToken: info.JoinTokens.Worker}); err != nil {
			t.Fatal(err)
		}
	}
	f.pauseImage(manager, second, third)
	src := &source{nodes: []placement.Node{node("gpu-1", 10<<30), node("gpu-2", 40<<30), node("gpu-3", 20<<30)}}
	now := time.Now()
	s, err := New(Options{Engine: manager, Source: src, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	hosts := map[string]string{}
	labels := func(ctx context.Context) map[string]string {
		list, err := manager.NodeList(ctx, swarm.NodeListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]string{}
		for _, n := range list {
			hosts[n.ID] = n.Description.Hostname
			out[n.Description.Hostname] = n.Spec.Labels[LabelProvisionable] + "/" + n.Spec.Labels[LabelRank]
		}
		return out
	}
	// awaitLabels lets time pass between rounds, as the damping asks for.
	awaitLabels := func(want map[string]string) {
		t.Helper()
		f.await(time.Minute, fmt.Sprint("labels ", want), func(ctx context.Context) error {
			now = now.Add(time.Minute)
			if _, err := s.Step(ctx); err != nil {
				return err
			}
			if got := labels(ctx); fmt.Sprint(got) != fmt.Sprint(want) {
				return fmt.Errorf("labels %v", got)
			}
			return nil
		})
	}
	awaitLabels(map[string]string{"gpu-1": "1/3", "gpu-2": "1/10", "gpu-3": "1/5"})

	t.Run("a worker keeps no labels", func(t *testing.T) {
		w, err := New(Options{Engine: second, Source: src})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Step(t.Context()); !errors.Is(err, ErrNoManager) {
			t.Errorf("error = %v", err)
		}
	})

	req := placement.Request{Deadline: 9, GPUMemory: 30 << 30}
	placed, err := s.Place(t.Context(), service("placed"), req, &shelf{src: src})
	if err != nil || placed.Node != "gpu-2" {
		t.Fatalf("placed on %+v, %v", placed, err)
	}
	if _, err := manager.ServiceCreate(t.Context(), service("by-label", "node.labels.laxity.rank==10"), swarm.ServiceCreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := manager.ServiceCreate(t.Context(), service("movable", "node.labels.laxity.provisionable==1", "node.role==worker"), swarm.ServiceCreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"placed", "by-label"} {
		if at := hosts[f.runsOn(manager, name, time.Minute, "")]; at != "gpu-2" {
			t.Errorf("service %s runs on %s", name, at)
		}
	}
	before := f.runsOn(manager, "movable", time.Minute, "")

	// The power goes at gpu-2; Prometheus still believes in it.
	second.kill(filepath.Join(f.dir, "2"))
	awaitLabels(map[string]string{"gpu-1": "1/5", "gpu-2": "0/0", "gpu-3": "1/10"})
	if at := hosts[f.runsOn(manager, "by-label", time.Minute, nodeID(hosts, "gpu-2"))]; at != "gpu-3" {
		t.Errorf("after the death of gpu-2 its service runs on %s", at)
	}
	if hosts[before] == "gpu-2" {
		if at := hosts[f.runsOn(manager, "movable", time.Minute, before)]; at != "gpu-3" {
			t.Errorf("the movable service runs on %s", at)
		}
	}
	p, err := s.Place(t.Context(), service("again"), req, &shelf{src: src})
	if !errors.Is(err, ErrNoNode) {
		t.Errorf("30 GiB are nowhere but on the dead node: %+v %v", p, err)
	}
}

func nodeID(hosts map[string]string, name string) string {
	for id, host := range hosts {
		if host == name {
			return id
		}
	}
	return ""
}
