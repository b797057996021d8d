package critest

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// entry is a container with its pod.
type entry struct {
	Pod
	id, sandbox       string
	pid               int
	state             cri.ContainerState
	created, finished time.Time
	vanished          bool // listed, and nothing more
}

// Run starts a container, and returns its id.
func (s *Server) Run(p Pod) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	c := &entry{Pod: p, id: randomID(), sandbox: randomID(), pid: s.next, state: cri.ContainerState_CONTAINER_RUNNING, created: time.Now()}
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		panic(err) // of a test
	}
	s.write(fmt.Sprintf("proc/%d/stat", c.pid), fmt.Sprintf("%d (sleep) S%s %d 0 0\n", c.pid, strings.Repeat(" 0", 18), up.Nano()/int64(10*time.Millisecond)))
	s.write(fmt.Sprintf("proc/%d/cgroup", c.pid), "5:freezer:"+s.above+c.group()+"\n")
	s.write("freezer"+c.group()+"/freezer.state", "THAWED\n")
	s.write("freezer"+c.group()+"/cgroup.procs", fmt.Sprintln(c.pid))
	s.all = append(s.all, c)
	s.tell(c, cri.ContainerEventType_CONTAINER_STARTED_EVENT)
	return c.id
}

// group is the container's control group, as CRI-O names it with systemd.
func (c *entry) group() string {
	uid := c.sandbox[:12]
	return "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + uid + ".slice/crio-" + c.id + ".scope"
}

// Stop ends it, and leaves it listed.
func (s *Server) Stop(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.find(id)
	s.end(c)
	s.tell(c, cri.ContainerEventType_CONTAINER_STOPPED_EVENT)
}

func (s *Server) end(c *entry) {
	if c.state == cri.ContainerState_CONTAINER_EXITED {
		return
	}
	c.state, c.finished = cri.ContainerState_CONTAINER_EXITED, time.Now()
	for _, path := range []string{fmt.Sprintf("proc/%d", c.pid), "freezer" + c.group()} {
		if err := os.RemoveAll(filepath.Join(s.dir, path)); err != nil {
			panic(err) // of a test
		}
	}
}

// Remove takes it away.
func (s *Server) Remove(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.find(id)
	s.end(c)
	s.all = slices.DeleteFunc(s.all, func(c *entry) bool { return c.id == id })
	s.tell(c, cri.ContainerEventType_CONTAINER_DELETED_EVENT)
}

// Vanish makes the server list it, and know nothing more: it is removed between two calls.
func (s *Server) Vanish(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.find(id).vanished = true
}

// SetState makes the engine take it for what it may not be.
func (s *Server) SetState(id string, state cri.ContainerState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.find(id).state = state
}

// SetFrozen sets its freezer, as somebody by hand. No event tells.
func (s *Server) SetFrozen(id string, frozen bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write("freezer"+s.find(id).group()+"/freezer.state", map[bool]string{true: "FROZEN\n", false: "THAWED\n"}[frozen])
}

// SetFreezing is SetFrozen for a container with a process that waits in the kernel: it is to be
// stopped, and is not yet.
func (s *Server) SetFreezing(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write("freezer"+s.find(id).group()+"/freezer.state", "FREEZING\n")
}

// Thawed says whether nobody asks its freezer to stop it.
func (s *Server) Thawed(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	text, err := os.ReadFile(filepath.Join(s.dir, "freezer"+s.find(id).group(), "freezer.state"))
	return err == nil && strings.HasPrefix(string(text), "THAWED")
}

// Frozen says whether its freezer is set.
func (s *Server) Frozen(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.find(id)
	if c == nil {
		return false
	}
	text, err := os.ReadFile(filepath.Join(s.dir, "freezer"+c.group(), "freezer.state"))
	return err == nil && strings.HasPrefix(string(text), "FROZEN")
}

func (s *Server) find(id string) *entry {
	if i := slices.IndexFunc(s.all, func(c *entry) bool { return c.id == id }); i >= 0 {
		return s.all[i]
	}
	return nil
}

// labels are those that the kubelet gives to the sandbox; with a name, to the container of it.
func (c *entry) labels(container string) map[string]string {
	labels := map[string]string{"io.kubernetes.pod.name": c.Name, "io.kubernetes.pod.namespace": c.Namespace, "io.kubernetes.pod.uid": c.sandbox[:12]}
	if container != "" {
		labels["io.kubernetes.container.name"] = container
		return labels
	}
	maps.Copy(labels, c.Labels)
	return labels
}

func randomID() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}
