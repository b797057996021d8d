package pidfd_test

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/exporter/container/docker/dockertest"
)

// A process that is killed while its container is paused ends at once under
// cgroup v2. Under v1 it cannot die before it is thawed, and is alive till then.
func TestFrozenThenKilled(t *testing.T) {
	c := dockertest.Client(t)
	image := dockertest.Image(t, c, []string{"sleep"}, nil)
	id := dockertest.Start(t, c, dockertest.Spec{Image: image, Command: []string{"sleep", "3600"}})
	pid := dockertest.PID(t, c, id)

	w := newWatcher(t)
	process := watch(t, w, pid)
	if err := c.ContainerPause(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil { // cgroup v1
		none(t, w)
		if !w.Alive(process) {
			t.Error("it counts as ended while it is frozen")
		}
		if err := c.ContainerUnpause(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	if exit := next(t, w); exit.Process != process {
		t.Errorf("got %+v", exit)
	}
}
