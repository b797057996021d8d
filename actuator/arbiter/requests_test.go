package arbiter

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/config"
)

// guard records how long an allocation may wait.
type guard struct {
	MemoryGuard
	maxWait time.Duration
}

func (g *guard) SetMaxWait(d time.Duration) { g.maxWait = d }

// A configuration that the loop applies after its client has gone counts for core and memory guard.
func TestConfigureOfNobodyWaiting(t *testing.T) {
	a, g := newArbiter(t, engine{}, nil), &guard{}
	a.o.MemoryGuard = g
	ctx, leave := context.WithCancel(t.Context())
	answered := make(chan error, 1)
	go func() { answered <- a.Configure(ctx, config.Config{MemoryWait: 30 * time.Minute}.WithDefaults()) }()
	r := <-a.asks
	leave()
	if err := <-answered; !errors.Is(err, context.Canceled) {
		t.Errorf("it answers %v", err)
	}
	if err := r.do(); err != nil || g.maxWait <= 30*time.Minute {
		t.Errorf("%v; the guard denies after %v", err, g.maxWait)
	}
}
