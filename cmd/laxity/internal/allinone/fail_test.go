package allinone_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/cmd/laxity/internal/allinone"
	"github.com/laxity/laxity/internal/engine"
)

// When one part fails the others end, and Run says which and why. Here another actuator has the
// state folder, which shows only once the parts run.
func TestRunEndsWhenAPartFails(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the actuator to give up")
	}
	dir := t.TempDir()
	s, err := allinone.New(allinone.Options{
		Node: "n", Device: allinone.DeviceSim, Sensor: "device", Engine: engine.Choice{DockerHost: "unix://" + filepath.Join(dir, "none.sock")}, StateDir: filepath.Join(dir, "s"),
		LockDir: t.TempDir(), Config: config.DefaultConfig(), Hold: config.HoldPause, MemoryGuard: config.MemoryOff, Swap: config.MemoryOff, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	lock, err := journal.TryLock(journal.ActuatorLock(filepath.Join(dir, "s", "actuator")))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Unlock()
	said := s.Actuator.Decisions().Watch(t.Context(), 0)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(context.Background()) }()
	select { // at once, not when it gives up
	case d := <-said:
		if d.Kind != decision.Service || d.Result != decision.Waiting || !strings.Contains(d.Reason, "waiting up to 15s") {
			t.Errorf("it says %+v", d)
		}
	case err := <-ended:
		t.Fatalf("it ended with %v before it said what it waits for", err)
	}
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "actuator: another actuator uses") {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("a part failed, and the others go on")
	}
}
