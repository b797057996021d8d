package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/undo"
	"github.com/laxity/laxity/internal/engine"
)

func TestOff(t *testing.T) {
	dir := t.TempDir()
	code, stdout, stderr := laxity("off", "--state-dir="+dir)
	if code != exitFailure || strings.Contains(stdout, "Nothing is held") || !strings.Contains(stderr, "no state folder at "+filepath.Join(dir, "actuator")) {
		t.Errorf("no state folder: code %d, %q, %q", code, stdout, stderr)
	}
	if entries, err := os.ReadDir(dir); len(entries) != 0 || err != nil {
		t.Errorf("it made %v, %v", entries, err)
	}
	state := filepath.Join(dir, "actuator")
	if err := os.MkdirAll(state, 0o700); err != nil {
		t.Fatal(err)
	}
	lock, err := journal.LockWithin(t.Context(), journal.ActuatorLock(state), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	code, _, stderr = laxity("off", "--state-dir="+dir)
	if code != exitFailure || !strings.Contains(stderr, "stop it first") {
		t.Errorf("beside an actuator: code %d, %q; want what to do", code, stderr)
	}
	lock.Unlock()
	if code, stdout, stderr = laxity("off", "--state-dir="+dir); code != exitOK || !strings.Contains(stdout, "Nothing is held") {
		t.Errorf("after it: code %d, %q, %q", code, stdout, stderr)
	}
	// sudo drops DOCKER_HOST.
	t.Setenv("DOCKER_HOST", "")
	t.Setenv("CONTAINERD_ADDRESS", "")
	podman := engine.Choice{Kind: engine.Docker, DockerHost: "unix:///run/podman/podman.sock"}
	if err := undo.RecordEngine(state, podman); err != nil {
		t.Fatal(err)
	}
	if code, stdout, stderr = laxity("off", "--state-dir="+dir); code != exitOK || !strings.Contains(stdout, "The container engine is docker at unix:///run/podman/podman.sock: the last actuator used it") {
		t.Errorf("by the actuator's engine: code %d, %q, %q", code, stdout, stderr)
	}
}
