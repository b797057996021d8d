package bench

import (
	"context"
	"time"
)

// Pass lets time pass, unless ctx ends: then it returns its error at once. It is for
// experiments, where a length of time is measured, or there is no event to wait for.
func Pass(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
