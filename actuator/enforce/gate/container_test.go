package gate_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/client"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/laxity/laxity/actuator/enforce/docker"
	"github.com/laxity/laxity/actuator/enforce/gate"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/plan"
	observed "github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/device/sim"
	"github.com/laxity/laxity/exporter/device/sim/cuda"
	"github.com/laxity/laxity/exporter/device/sim/simtest"
	"github.com/laxity/laxity/internal/cudaprobe/cudatest"
)

// house is a simulated GPU and an engine whose containers can have a shell.
type house struct {
	*testing.T
	engine *client.Client
	gpu    *simtest.Server
	image  string
	begin  string // folder of the file for which the workload waits
}

func newHouse(t *testing.T) *house {
	t.Helper()
	h := &house{T: t, engine: simtest.Docker(t), begin: t.TempDir()}
	h.image = simtest.Image(t, h.engine)
	h.gpu = simtest.Start(t, sim.Options{Cards: []sim.Card{{Speed: sim.H200().Scaled(512).Faster(20)}}})
	return h
}

// enforcer holds containers at the gate, and parks them by the engine; ahead is
// EnforcerOptions.Ahead.
func (h *house) enforcer(ahead int) (*gate.Enforcer, *journal.Journal) {
	h.Helper()
	j, err := journal.Open(h.TempDir())
	if err != nil {
		h.Fatal(err)
	}
	pauser, err := docker.New(docker.Options{Engine: h.engine, Journal: j})
	if err != nil {
		h.Fatal(err)
	}
	e := gate.NewEnforcer(gate.EnforcerOptions{
		Gate:   gate.Options{Name: cudatest.RecordName(h), Container: observed.Proc("/proc").OfPID},
		Pauser: pauser, Journal: j, Required: true, Ahead: ahead, Lease: time.Hour,
	})
	if err := e.Open(h.Context()); err != nil {
		h.Skip(err)
	}
	h.Cleanup(func() {
		if err := e.Close(); err != nil {
			h.Error(err)
		}
	})
	return e, j
}

// matmul is the workload with a short task, which begins when it is told to. Its
// host phase is long enough to put probes on it, on a busy machine too.
func (h *house) matmul() string { return "/matmul --n 512 --kernels 1 --host-seconds 1" }

// tell lets the workload begin, once the gate looks out for what the container
// does.
func (h *house) tell(id string, views func() map[string]gate.View) {
	h.Helper()
	h.await("the gate has looked for its processes", func() bool { v, known := views()[id]; return known && !v.Looking })
	file := filepath.Join(h.begin, "at")
	if err := errors.Join(os.WriteFile(file+".new", []byte("0\n"), 0o644), os.Rename(file+".new", file)); err != nil {
		h.Fatal(err)
	}
}

func (h *house) await(what string, ok func() bool) {
	h.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			h.Fatal("waited in vain until", what)
		}
	}
}

// script runs a script in a container that borrows the host's shells.
func (h *house) script(shell ...string) string {
	h.Helper()
	mounts := []mount.Mount{
		{Type: mount.TypeBind, Source: filepath.Dir(h.gpu.Socket), Target: "/run/laxity-sim"},
		{Type: mount.TypeBind, Source: simtest.Library(h.T), Target: "/laxity/lib", ReadOnly: true},
		{Type: mount.TypeBind, Source: h.begin, Target: "/laxity/begin", ReadOnly: true},
	}
	for _, folder := range []string{"/usr", "/lib", "/lib64", "/bin"} {
		if _, err := os.Stat(folder); err == nil {
			mounts = append(mounts, mount.Mount{Type: mount.TypeBind, Source: folder, Target: folder, ReadOnly: true})
		}
	}
	made, err := h.engine.ContainerCreate(h.Context(), &container.Config{
		Image: h.image, Entrypoint: shell,
		Env: []string{cuda.EnvSocket + "=/run/laxity-sim/" + filepath.Base(h.gpu.Socket), "LD_LIBRARY_PATH=/laxity/lib", "LAXITY_BEGIN=/laxity/begin/at", "PATH=/usr/bin:/bin"},
	}, &container.HostConfig{Mounts: mounts, NetworkMode: "none"}, nil, nil, "laxity-test-"+strconv.FormatInt(time.Now().UnixNano(), 36))
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() {
		if err := h.engine.ContainerRemove(context.Background(), made.ID, container.RemoveOptions{Force: true}); err != nil {
			h.Error(err)
		}
	})
	if err := h.engine.ContainerStart(h.Context(), made.ID, container.StartOptions{}); err != nil {
		h.Fatal(err)
	}
	return made.ID
}

func (h *house) target(id string) gate.Target {
	h.Helper()
	c, err := h.engine.ContainerInspect(h.Context(), id)
	if err != nil {
		h.Fatal(err)
	}
	return gate.Target{ID: id, PID: c.State.Pid}
}

// ended waits for the container's end, and returns its code and output.
func (h *house) ended(id string) (int, string) {
	h.Helper()
	ctx, cancel := context.WithTimeout(h.Context(), patience)
	defer cancel()
	done, failed := h.engine.ContainerWait(ctx, id, container.WaitConditionNotRunning)
	code := -1
	select {
	case r := <-done:
		code = int(r.StatusCode)
	case err := <-failed:
		h.Error(err)
	}
	return code, h.output(id)
}

func (h *house) output(id string) string {
	h.Helper()
	logs, err := h.engine.ContainerLogs(context.Background(), id, container.LogsOptions{ShowStdout: true, ShowStderr: true})
	if err != nil {
		h.Fatal(err)
	}
	defer logs.Close()
	var out bytes.Buffer
	if _, err := stdcopy.StdCopy(&out, &out, logs); err != nil {
		h.Fatal(err)
	}
	return out.String()
}

func (h *house) paused(id string) bool {
	h.Helper()
	c, err := h.engine.ContainerInspect(h.Context(), id)
	if err != nil {
		h.Fatal(err)
	}
	return c.State.Paused
}

func inContainers(o *gate.Options) { o.Container = observed.Proc("/proc").OfPID }

// A tenant that continues itself, again and again, does not get through.
func TestTenantContinuesItself(t *testing.T) {
	h, r := newHouse(t), start(t, inContainers)
	if err := r.Weakness(); err != nil {
		t.Skip(err)
	}
	id := h.script("/bin/sh", "-c", h.matmul()+` & pid=$!
while kill -CONT $pid; do echo sent; sleep 0.001; done 2>/dev/null; wait $pid; echo code $?`)
	r.Arbitrate([]gate.Target{h.target(id)})
	h.tell(id, r.View)
	r.phase(t, id, plan.Waiting)
	sent := func() int { return strings.Count(h.output(id), "sent\n") }
	before := sent()
	h.await("it has continued itself 100 times", func() bool { return sent() >= before+100 })
	if out := h.output(id); strings.Contains(out, "kernels_end") {
		t.Errorf("its kernel ran without admission:\n%s", out)
	}
	r.admit(t, id)
	if code, out := h.ended(id); code != 0 || !strings.Contains(out, "code 0") {
		t.Errorf("code %d:\n%s", code, out)
	}
}

// A shell with job control would take a stopped job for suspended and go on: its
// job is not stopped at all, and View says why.
func TestShellWithJobControl(t *testing.T) {
	h, r := newHouse(t), start(t, inContainers)
	id := h.script("/bin/bash", "-c", "set -m; "+h.matmul()+"; echo code $?")
	r.Arbitrate([]gate.Target{h.target(id)})
	h.tell(id, r.View)
	v := r.await(t, id, "an obstacle", func(v gate.View) bool { return v.Obstacle != "" })
	if v.Phase != "" || !strings.Contains(v.Obstacle, "job control") {
		t.Errorf("%+v", v)
	}
	if err := r.Shut(id); err == nil {
		t.Error("Shut claims to work")
	}
	if code, out := h.ended(id); code != 0 || !strings.Contains(out, "code 0") {
		t.Errorf("code %d:\n%s", code, out)
	}
}

// The end of a parent does not end a held task, nor lets it through.
func TestParentEndsWhileHeld(t *testing.T) {
	h, r := newHouse(t), start(t, inContainers)
	id := h.script("/bin/sh", "-c", `setsid sh -c '`+h.matmul()+`; true' & sleep 60`)
	r.Arbitrate([]gate.Target{h.target(id)})
	h.tell(id, r.View)
	v := r.phase(t, id, plan.Waiting)
	parent := parentOf(t, v.PIDs[0])
	if err := syscall.Kill(parent, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for parentOf(t, v.PIDs[0]) == parent {
		time.Sleep(time.Millisecond)
	}
	if v := r.View()[id]; v.Phase != plan.Waiting {
		t.Fatalf("%+v", v)
	}
	r.admit(t, id)
	r.phase(t, id, plan.Finishing)
	h.await("it got to its end", func() bool { return strings.Contains(h.output(id), `"exit"`) })
}

func parentOf(t *testing.T, pid int) int {
	t.Helper()
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	state := fields[0]
	parent, err := strconv.Atoi(fields[1])
	if err != nil || state == "Z" {
		t.Fatal(state, err)
	}
	return parent
}

func view(t *testing.T, e *gate.Enforcer) map[string]gate.View {
	t.Helper()
	g, err := e.Gate()
	if g == nil {
		t.Fatal(err)
	}
	return g.View()
}

// Who is held and waits for more than a moment is paused, is unpaused early when it is soon
// in turn, still stands at the gate then, and goes on in its turn.
func TestParked(t *testing.T) {
	h := newHouse(t)
	e, j := h.enforcer(1)
	id, other := h.script("/bin/sh", "-c", h.matmul()), "another"
	e.Cover([]gate.Target{h.target(id)})
	e.Line(nil, map[string][]string{"gpu": {other, id}}, nil)
	hold := journal.Hold{ContainerID: id, Container: "name", Cause: string(plan.Arbitrate), Reason: "test", Since: time.Now(), Until: time.Now().Add(time.Hour), Expires: time.Now().Add(time.Hour)}
	pause := func() {
		t.Helper()
		if err := e.Pause(t.Context(), hold); err != nil {
			t.Fatal(err)
		}
	}
	h.tell(id, func() map[string]gate.View { return view(t, e) })
	h.await("it waits", func() bool { return view(t, e)[id].Phase == plan.Waiting })
	pause()
	h.await("it is paused", func() bool { return h.paused(id) })
	if _, recorded, err := j.Get(id); !recorded || err != nil {
		t.Fatal("not on record:", err)
	}
	if err := e.ToLaunch(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if v := view(t, e)[id]; v.Phase != plan.Waiting || v.Admitted {
		t.Fatalf("undoing the pause let it launch: %+v", v)
	}
	pause()
	h.await("it is paused again", func() bool { return h.paused(id) })
	e.Line(map[string][]string{"gpu": {other}}, map[string][]string{"gpu": {id}}, nil)
	h.await("it is unpaused", func() bool { return !h.paused(id) })
	if p, _ := e.Phases(); p[id] != plan.Waiting {
		t.Fatalf("it does not stand at the gate: %v", p)
	}
	e.Line(map[string][]string{"gpu": {id}}, nil, nil)
	if code, out := h.ended(id); code != 0 {
		t.Errorf("code %d:\n%s", code, out)
	}
	h.await("it is off the record", func() bool { _, recorded, err := j.Get(id); return !recorded && err == nil })
}

// Who waits at the gate, and is not held when the planner stops planning (the exporter
// does not see the engine any more), goes on.
func TestNobodyWaitsForALineOfLongAgo(t *testing.T) {
	h := newHouse(t)
	e, _ := h.enforcer(0)
	id := h.script("/bin/sh", "-c", h.matmul())
	e.Cover([]gate.Target{h.target(id)})
	e.Line(nil, map[string][]string{"gpu": {id}}, nil)
	h.tell(id, func() map[string]gate.View { return view(t, e) })
	if code, out := h.ended(id); code != 0 {
		t.Errorf("code %d:\n%s", code, out)
	}
}

// A container that was paused as a whole while the gate covers it, and that a person
// unpauses, is not taken for one that the gate holds or that we let go.
func TestPersonUnpausesWhatIsGated(t *testing.T) {
	h := newHouse(t)
	e, _ := h.enforcer(0)
	id := h.script("/bin/sh", "-c", "/matmul --n 512 --kernels 1 --host-seconds 2")
	e.Cover([]gate.Target{h.target(id)})
	e.Line(nil, map[string][]string{"gpu": {id}}, nil)
	h.tell(id, func() map[string]gate.View { return view(t, e) })
	h.await("the gate covers it", func() bool { return view(t, e)[id].Phase == plan.Preparing })
	hold := journal.Hold{ContainerID: id, Container: "name", Cause: string(plan.Asked), Reason: "test", Since: time.Now(), Until: time.Now().Add(time.Hour), Expires: time.Now().Add(time.Hour)}
	for _, admitted := range []bool{false, true} {
		if err := e.Pause(t.Context(), hold); err != nil {
			t.Fatal(err)
		}
		if admitted {
			e.Line(map[string][]string{"gpu": {id}}, nil, nil)
		}
		if s, err := e.Status(t.Context(), id); err != nil || !s.Paused {
			t.Fatalf("paused as a whole: %+v %v", s, err)
		}
		if err := h.engine.ContainerUnpause(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if s, err := e.Status(t.Context(), id); err != nil || s.Paused || s.LetGo {
			t.Errorf("admitted %v, unpaused by a person: %+v %v", admitted, s, err)
		}
	}
	if err := e.Unpause(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if code, out := h.ended(id); code != 0 {
		t.Errorf("code %d:\n%s", code, out)
	}
}
