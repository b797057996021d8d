package bench

import (
	"context"
	"errors"
	"time"
)

// Pass waits for d, or returns ctx's error as soon as ctx ends. It is for experiments that measure a
// length of time, or have no event to wait for.
func Pass(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ErrTooLate is the error of Until after its limit.
var ErrTooLate = errors.New("it takes too long")

// Until checks 20 times a second, up to a limit, whether a condition holds.
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
