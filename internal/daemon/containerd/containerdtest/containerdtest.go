// Package containerdtest gives a test a containerd of its own, with an image of a program that
// sleeps.
//
// For tests only. It imports internal/daemon/containerd, internal/daemon/sleeper, internal/needtest and the standard library.
package containerdtest

import (
	"context"
	"testing"
	"time"

	"github.com/laxity/laxity/internal/daemon/containerd"
	"github.com/laxity/laxity/internal/daemon/sleeper"
	"github.com/laxity/laxity/internal/needtest"
)

// Image runs until it gets SIGTERM, or at once if it has an argument.
const Image = "laxity.test/sleep:1"

// New starts a containerd that ends with the test, or skips the test with the reason.
func New(t testing.TB) *containerd.Engine {
	t.Helper()
	sleep := sleeper.Build(t)
	e, err := containerd.New(t.Context(), sleep)
	if err != nil {
		needtest.Containerd.Skip(t, err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("left behind: %v", err)
		}
	})
	if err := e.Import(t.Context(), Image, map[string]string{"/sleep": sleep}, []string{"/sleep"}); err != nil {
		t.Fatal(err)
	}
	return e
}

// Context outlives the test's own, for what is removed after it.
func Context(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}
