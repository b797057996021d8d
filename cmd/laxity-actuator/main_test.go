package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/allocator"
	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/cmd/internal/swaphelper"
)

// The programs that the actuator starts are itself: here that is this test.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "guardian" || os.Args[1] == swaphelper.Name) {
		main()
	}
	os.Exit(m.Run())
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.yml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestBadFlags(t *testing.T) {
	for _, args := range [][]string{
		{"--no-such-flag"},
		{"--policy=best"},
		{"--arbitrate=sometimes"},
		{"--guardian=angel"},
		{"--max-hold=soon"},
		{"--share=all"},
		{"--late=5"},
		{"--placement.ttl=0s"},
		{"token", "--mode=rw", "--", "/nonexistent"},
		{"--exporter=nowhere"},
		{"--max-hold=1ms"},
		{"--late=0"},
		{"--containers.label==x"},
		{"--settle=0"},
		{"--batch-floor=0"},
		{"--policy=p3", "--share=one"},
		{"--breaker.share=2"},
		{"--exporter.config.file=" + write(t, "basic_auth: {username: a, password: b}"), "--exporter.token-file=" + write(t, "0123456789abcdef")},
	} {
		if code := command(args); code != 2 {
			t.Errorf("%v: status %d", args, code)
		}
	}
	dir := t.TempDir()
	for _, args := range [][]string{
		{"--exporter.config.file=" + filepath.Join(dir, "missing")},
		{"--config.file=" + write(t, "late: 0s")},
		{"--config.file=" + write(t, "batch_floor: 0")},
		{"--config.file=" + filepath.Join(dir, "missing")},
		{"--config.file=" + write(t, "policy: best")},
		{"--config.file=" + write(t, "polizy: fifo")},
		{"--web.config.file=" + filepath.Join(dir, "missing")},
		{"--web.bearer-token-file=" + filepath.Join(dir, "missing")},
		{"--web.bearer-token-file=" + write(t, "short")},
		{"--web.bearer-token-file=" + write(t, "0123456789abcdef"), "--web.config.file=" + write(t, "basic_auth_users: {a: b}")},
	} {
		if code := command(append(args, "--state-dir="+dir)); code != 1 {
			t.Errorf("%v: status %d", args, code)
		}
	}
}

func TestConfigFile(t *testing.T) {
	base := config.Config{Policy: "p3", Arbitrate: config.Auto, MaxHold: time.Minute, Lease: time.Minute, Settle: time.Second, BreakerActions: 9, BreakerShare: 1, Late: time.Second, BatchFloor: 0.1,
		MemoryShare: allocator.ByLimit, MemoryWait: time.Minute}
	got, err := loadConfig(write(t, "policy: fifo\nmax_hold: 30s\nlate: 5s\nbatch_floor: 0.2\nbreaker: {actions: 7}\n"), base)
	if err != nil || got.Policy != "fifo" || got.BreakerActions != 7 || got.MaxHold != 30*time.Second || got.Lease != time.Minute || got.Late != 5*time.Second || got.BatchFloor != 0.2 {
		t.Errorf("%+v %v", got, err)
	}
	if got, err = loadConfig("../../package/examples/actuator.yaml", base); err != nil || got.BatchFloor != 0.05 {
		t.Errorf("the packages' example: %+v, %v", got, err)
	}
	if got, err = loadConfig(write(t, ""), base); err != nil || got != base {
		t.Errorf("%+v %v", got, err)
	}
	if _, err = loadConfig(write(t, "max_hold: soon"), base); err == nil || !strings.Contains(err.Error(), "it may set policy") {
		t.Errorf("error %v", err)
	}
}
