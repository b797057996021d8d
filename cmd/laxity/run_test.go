package main

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// An actuator that takes a connection and never answers does not keep the user from leaving.
func TestSignalEndsRunWhileTheActuatorIsAsked(t *testing.T) {
	for _, command := range []string{"run", "create"} {
		t.Run(command, func(t *testing.T) {
			over := make(chan struct{})
			server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				_ = syscall.Kill(syscall.Getpid(), syscall.SIGHUP)
				<-over
			}))
			defer server.Close()
			defer close(over)
			bin := t.TempDir()
			note := filepath.Join(bin, "called")
			writeFile(t, filepath.Join(bin, "docker"), "#!/bin/sh\n: > "+note+"\n", 0o755)
			t.Setenv("PATH", bin)
			code, _, stderr := laxity(command, "--actuator.url="+server.URL, "--deadline=9s", "i")
			if code != 128+1 || !strings.Contains(stderr, "no container was created") {
				t.Errorf("code %d, %q", code, stderr)
			}
			if found, _ := filepath.Glob(note); found != nil {
				t.Error("docker was called")
			}
		})
	}
}
