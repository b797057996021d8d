package actuator_test

import (
	"testing"

	"github.com/laxity/laxity/actuator"
	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/mechanism"
)

// While an engine takes long to answer, people look at the state: it has the settings, and is not ready.
func TestStateBeforeTheEngineAnswers(t *testing.T) {
	a, err := actuator.New(actuator.Options{
		StateDir: t.TempDir(), Source: newSource(), Config: config.Config{Policy: "llf", Arbitrate: config.Always},
		Mechanisms: mechanism.Options{MemoryGuard: config.MemoryOff},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() }) // it does not run
	if s := a.State(); s.Policy != "llf" || s.Arbitrate != config.Always || s.MemoryGuard != string(config.MemoryOff) || s.Ready {
		t.Errorf("policy %q, arbitrate %q, memory guard %q, ready %v", s.Policy, s.Arbitrate, s.MemoryGuard, s.Ready)
	}
}
