package allinone_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/cmd/laxity/internal/allinone"
	"github.com/laxity/laxity/internal/engine"
)

// lines gets each line of a log.
type lines chan string

func (l lines) Write(b []byte) (int, error) { l <- string(b); return len(b), nil }

// nodes.yaml is read again by a reload, and when it changes.
func TestNodesAreReadAgain(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the next look at the file")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "nodes.yaml")
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("- {node: a, docker: {host: 'ssh://a'}}\n")
	log := make(lines, 1000)
	s, err := allinone.New(allinone.Options{
		Node: "n", Device: allinone.DeviceSim, Sensor: "device", Engine: engine.Choice{DockerHost: "unix://" + filepath.Join(dir, "none.sock")}, StateDir: filepath.Join(dir, "s"),
		LockDir: t.TempDir(), Config: config.DefaultConfig(), Hold: config.HoldPause, MemoryGuard: config.MemoryOff, Swap: config.MemoryOff, NodesFile: path,
		Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	put("no list")
	if err := s.Actuator.Reload(t.Context()); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a reload with a bad file: %v", err)
	}
	put("- {node: b, docker: {host: 'ssh://b'}}\n")
	if err := s.Actuator.Reload(t.Context()); err != nil {
		t.Errorf("a reload: %v", err)
	}
	for said, late := "", time.After(time.Minute); !strings.Contains(said, "read the list of nodes again"); {
		select {
		case said = <-log:
		case <-late:
			t.Fatal("the changed file is not read")
		}
	}
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
