package daemon

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
)

// Service is a program that is stopped and started again. The zero value does not run.
type Service struct{ process *Process }

// Run starts it and returns when it is ready, as Process.Await says.
func (s *Service) Run(ctx context.Context, cmd *exec.Cmd, ready func() bool) (err error) {
	if s.process, err = Run(cmd); err != nil {
		return err
	}
	return s.process.Await(ctx, ready)
}

// Runs reports whether it was started, and not stopped or killed since.
func (s *Service) Runs() bool { return s.process != nil }

// PID is its process; it must run.
func (s *Service) PID() int { return s.process.PID }

// Stop ends it as an upgrade does. It may be called again.
func (s *Service) Stop() error { return s.end((*Process).Stop) }

// Kill kills it without warning. It may be called again.
func (s *Service) Kill() error { return s.end((*Process).Kill) }

func (s *Service) end(by func(*Process) error) error {
	if s.process == nil {
		return nil
	}
	err := by(s.process)
	s.process = nil
	return err
}

// RemoveFolder removes a folder in which a container engine has mounted things.
func RemoveFolder(dir string) error {
	mounts, _ := os.ReadFile("/proc/self/mounts")
	lines := strings.Split(string(mounts), "\n")
	for _, line := range slices.Backward(lines) { // inner mounts first
		if f := strings.Fields(line); len(f) > 1 && strings.HasPrefix(f[1], dir+"/") {
			_ = syscall.Unmount(f[1], syscall.MNT_DETACH)
		}
	}
	return os.RemoveAll(dir)
}
