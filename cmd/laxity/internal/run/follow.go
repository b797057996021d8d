package run

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/laxity/laxity/actuator/placement/api"
	"github.com/laxity/laxity/internal/plain"
)

// follower waits for the container's id and reports it to the actuator. Docker writes the id
// to the cid file once the container is created. Until then the follower renews the
// reservation, because docker may have to pull the image.
type follower struct {
	runner  *Runner
	promise api.Placement
	cidFile string
	done    chan struct{} // docker has ended
	ended   chan struct{} // so has the follower
	id      string        // read it after ended
}

const (
	look = 20 * time.Millisecond
	// The reservation is renewed at a third of its time, but not more often than minRenew and not less often than
	// maxRenew.
	minRenew = time.Second
	maxRenew = 20 * time.Second
)

// renewEvery returns how often to renew a reservation. It reads the actuator's clock alone, which may differ from ours.
func renewEvery(p api.Placement) time.Duration {
	if !p.Expires.After(p.Made) { // an answer without times
		return maxRenew
	}
	return min(max(p.Expires.Sub(p.Made)/3, minRenew), maxRenew)
}

func (f *follower) follow(ctx context.Context) {
	defer close(f.ended)
	tick, renewal := time.NewTicker(look), time.NewTicker(renewEvery(f.promise))
	defer tick.Stop()
	defer renewal.Stop()
	for f.id == "" {
		select {
		case <-f.done:
			f.read(ctx)
			return
		case <-tick.C:
			f.read(ctx)
		case <-renewal.C:
			f.report(ctx, "the reservation was lost while the container was created", func(ctx context.Context) error {
				return f.runner.Placements.Check(ctx, f.promise.ID)
			})
		}
	}
}

func (f *follower) read(ctx context.Context) {
	b, err := os.ReadFile(f.cidFile)
	id := strings.TrimSpace(string(b))
	if err != nil || len(id) < 64 {
		return
	}
	f.id = id
	f.report(ctx, "the reservation is not confirmed", func(ctx context.Context) error {
		return f.runner.Placements.Bind(ctx, f.promise.ID, id)
	})
}

// report prints what went wrong and goes on: the container runs, reserved or not.
func (f *follower) report(ctx context.Context, what string, ask func(context.Context) error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := ask(ctx); err != nil {
		fmt.Fprintf(plain.NewWriter(f.runner.Stderr), "laxity: %s: %v\n", what, err)
	}
}
