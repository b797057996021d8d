package realdocker

import (
	"testing"

	"github.com/laxity/laxity/internal/daemon/dockerd"
	"github.com/laxity/laxity/internal/needtest"
)

// NewDaemon starts a Docker engine that belongs to one test, whose containers live
// on while it restarts, with further arguments; or skips the test with the reason.
func NewDaemon(t *testing.T, args ...string) *dockerd.Engine {
	t.Helper()
	e, err := dockerd.New(t.Context(), append([]string{dockerd.LiveRestore}, args...)...)
	if err != nil {
		needtest.Docker.Skip(t, err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("left behind: %v", err)
		}
	})
	return e
}
