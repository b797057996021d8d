// Package mps runs NVIDIA's multi-process service for experiments that compare with
// it, with folders of its own, so that none but their containers find it.
package mps

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/docker/docker/api/types/mount"

	"github.com/laxity/laxity/bench/tenant"
)

// UnavailableError means that MPS cannot be had on this machine; it says why.
type UnavailableError struct{ Why string }

// Error implements error.
func (e *UnavailableError) Error() string { return e.Why }

// Service is MPS, running or not.
type Service struct {
	program string
	dir     string
}

const timeout = 15 * time.Second

// New finds the control program and makes the folders of the service in dir. The
// error is an UnavailableError where the machine has no MPS.
func New(dir string) (*Service, error) {
	program, err := find()
	if err != nil {
		return nil, &UnavailableError{err.Error()}
	}
	s := &Service{program: program, dir: dir}
	return s, errors.Join(os.MkdirAll(s.pipe(), 0o755), os.MkdirAll(s.logs(), 0o755))
}

// Spec is what a container needs to be a client. It may be made before Start.
func (s *Service) Spec() tenant.Spec {
	return tenant.Spec{
		Env:    []string{"CUDA_MPS_PIPE_DIRECTORY=" + s.pipe(), "CUDA_MPS_LOG_DIRECTORY=" + s.logs()},
		Mounts: []mount.Mount{{Type: mount.TypeBind, Source: s.dir, Target: s.dir}},
		IPC:    "host",
	}
}

// Start starts the service, lets a first container of that name start its server,
// which others should not have to wait for, and checks that it did.
func (s *Service) Start(ctx context.Context, runner *tenant.Runner, name string) (err error) {
	if out, err := s.command(ctx, "", "-d"); err != nil {
		return &UnavailableError{fmt.Sprintf("%s -d: %v: %s", s.program, err, out)}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop())
		}
	}()
	first := s.Spec()
	first.Name, first.Args = name, []string{"--n", "64", "--kernels", "1", "--destroy"}
	t, err := runner.Start(ctx, first)
	if err != nil {
		return err
	}
	if err := errors.Join(t.Wait(ctx), t.Remove()); err != nil {
		return err
	}
	servers, err := s.command(ctx, "get_server_list\n")
	if err != nil {
		return fmt.Errorf("MPS: %w: %s", err, servers)
	}
	if servers == "" {
		return &UnavailableError{"a container did not reach the MPS daemon: it has no server"}
	}
	return nil
}

func find() (string, error) {
	const name = "nvidia-cuda-mps-control"
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/local/nvidia/bin", "/usr/bin", "/opt/bin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("no MPS: %w", err)
}

func (s *Service) pipe() string { return filepath.Join(s.dir, "pipe") }
func (s *Service) logs() string { return filepath.Join(s.dir, "log") }

// command runs the control program; without arguments it takes commands on its
// standard input.
func (s *Service) command(ctx context.Context, input string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.program, args...)
	cmd.Env = append(os.Environ(), "CUDA_MPS_PIPE_DIRECTORY="+s.pipe(), "CUDA_MPS_LOG_DIRECTORY="+s.logs())
	cmd.Stdin = strings.NewReader(input)
	// A file, because the daemon keeps it: of a pipe the end would never come.
	out, err := os.Create(filepath.Join(s.dir, "output"))
	if err != nil {
		return "", err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	err = cmd.Run()
	text, rerr := os.ReadFile(out.Name())
	return string(bytes.TrimSpace(text)), errors.Join(err, rerr)
}

// Stop ends the service and waits for its end, also when the caller's context is
// over: an MPS server that lives on changes how the next way runs.
func (s *Service) Stop() error {
	pid := s.pid()
	out, err := s.command(context.Background(), "quit\n")
	if err != nil {
		return fmt.Errorf("end MPS: %w: %s", err, out)
	}
	for deadline := time.Now().Add(timeout); pid > 0 && !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH); {
		if time.Now().After(deadline) {
			return fmt.Errorf("the MPS daemon (process %d) has not ended", pid)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return os.RemoveAll(s.dir)
}

// pid of the daemon; 0 if it is not known.
func (s *Service) pid() int {
	text, _ := os.ReadFile(filepath.Join(s.pipe(), "nvidia-cuda-mps-control.pid"))
	pid, _ := strconv.Atoi(string(bytes.TrimSpace(text)))
	return pid
}
