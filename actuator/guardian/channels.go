package guardian

import (
	"context"
	"time"
)

// Channels are the time slices and the channels that Laxity changes on GPUs; an
// enforce/channels.Enforcer has them.
type Channels interface {
	// Pending is how many processes are on record.
	Pending() (int, error)
	// Sweep switches on the channels whose lease ended more than grace ago, and returns of how
	// many processes.
	Sweep(ctx context.Context, grace time.Duration) (int, error)
	// RestoreAll undoes all that is on record, and returns how many processes are left.
	RestoreAll(ctx context.Context) (left int, err error)
}

// channelsGrace is how long a living actuator has, after the end of a lease, to renew or end it
// itself. It is short, as the leases of channels are.
const channelsGrace = 100 * time.Millisecond

// sweepChannels ends expired leases of channels until ctx ends. It has its own goroutine, so that a
// driver that hangs delays nothing else.
func (g *Guardian) sweepChannels(ctx context.Context) {
	if g.o.Channels == nil {
		return
	}
	g.eachPoll(ctx, func() {
		if _, err := g.o.Channels.Sweep(ctx, channelsGrace); ctx.Err() == nil {
			g.trouble("cannot switch on channels whose lease has ended; will try again", err)
		}
	})
}

// restoreUntil retries restoreChannels until nothing is left or done is closed.
func (g *Guardian) restoreUntil(ctx context.Context, done <-chan struct{}) (left int) {
	for {
		if left = g.restoreChannels(ctx); left == 0 {
			return 0
		}
		again := time.NewTimer(g.channels.wait)
		select {
		case <-again.C:
		case <-done:
			again.Stop()
			return left
		}
	}
}

// restoreChannels undoes what is on record, and returns how many processes are left.
func (g *Guardian) restoreChannels(ctx context.Context) (left int) {
	if g.o.Channels == nil {
		return 0
	}
	began, pending := g.o.Now(), g.channelsPending()
	if pending == 0 {
		g.channels = backoff{}
		return 0
	}
	left, err := g.o.Channels.RestoreAll(ctx)
	if ctx.Err() == nil {
		g.trouble("cannot undo all that was changed on GPUs; will try again", err, "processes", left)
	}
	if left == 0 && err == nil {
		g.o.Logger.Warn("switched channels on and restored time slices", "processes", pending, "took", g.o.Now().Sub(began))
		g.channels = backoff{}
		return 0
	}
	g.channels.later(g.o.Now(), 100*time.Millisecond, 5*time.Second)
	return max(left, 1)
}

// channelsPending is how many processes are on record; 1 if that is not known.
func (g *Guardian) channelsPending() int {
	if g.o.Channels == nil {
		return 0
	}
	n, err := g.o.Channels.Pending()
	if err != nil {
		return 1
	}
	return n
}

// channelsDue reports whether there is something to undo now.
func (g *Guardian) channelsDue() bool {
	return !g.o.Now().Before(g.channels.next) && g.channelsPending() > 0
}
