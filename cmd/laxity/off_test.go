package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/journal"
)

func TestOff(t *testing.T) {
	dir := t.TempDir()
	code, stdout, stderr := laxity("off", "--state-dir="+dir)
	if code != exitOK || !strings.Contains(stdout, "Nothing is held") {
		t.Errorf("nothing on record: code %d, %q, %q", code, stdout, stderr)
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
	if code, _, stderr = laxity("off", "--state-dir="+dir); code != exitOK {
		t.Errorf("after it: code %d, %q", code, stderr)
	}
}
