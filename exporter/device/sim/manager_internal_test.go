package sim

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// No request of a manager comes into effect after its process has ended.
func TestManagerThatEnded(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(cmd.Process.Pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	caller := &peer{PID: cmd.Process.Pid, pidfd: os.NewFile(uintptr(fd), "pidfd")}
	defer caller.Close()
	g, err := New(Options{Channels: ChannelCost{Find: -1}})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Attach(1).Exit()
	ctx := context.WithValue(t.Context(), callerKey{}, caller)
	if _, err := g.Groups(ctx, Tenant{PID: 1}); err != nil {
		t.Errorf("while it lives: %v", err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if _, err := g.Groups(ctx, Tenant{PID: 1}); !errors.Is(err, ErrExited) {
		t.Errorf("after its end: %v", err)
	}
}
