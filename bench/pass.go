package bench

import (
	"context"
	"errors"
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

// ErrTooLate is what Until returns after its limit.
var ErrTooLate = errors.New("it takes too long")

// Until asks 20 times a second whether something holds, up to a limit.
func Until(ctx context.Context, limit time.Duration, holds func() (bool, error)) error {
	for deadline := time.Now().Add(limit); ; {
		if ok, err := holds(); ok || err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return ErrTooLate
		}
		if err := Pass(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}
