// Package enginetest gives tests the container engines that Laxity works with by Docker's API, one
// after the other, so that all of them pass the same rows. Another engine with that API is one more
// row of engines.
//
// For tests only. It imports internal/daemon/podman, internal/needtest and the standard library.
package enginetest

import (
	"strings"
	"testing"

	"github.com/laxity/laxity/internal/daemon/podman"
	"github.com/laxity/laxity/internal/needtest"
)

// engines lists the engines by name. Each leads the environment of the test to its engine, or
// skips the test with the reason.
var engines = []struct {
	name string
	use  func(t *testing.T)
}{
	{"docker", func(*testing.T) {}}, // whoever connects skips
	{"podman", func(t *testing.T) { Podman(t) }},
}

// Each runs test once for each engine, as a subtest with the engine's name. DOCKER_HOST names the
// engine meanwhile, for clients in the test and for the programs that it starts.
func Each(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			e.use(t)
			test(t)
		})
	}
}

// Podman starts a Podman that belongs to the test, and leads the environment of the test to it; or
// skips the test with the reason.
func Podman(t *testing.T) *podman.Engine {
	t.Helper()
	e, err := podman.New(t.Context())
	if err != nil {
		needtest.Podman.Skip(t, err)
	}
	Use(t, e)
	return e
}

// Rootless is Podman as an ordinary user, with control groups of version 2.
func Rootless(t *testing.T) *podman.Engine {
	t.Helper()
	e, err := podman.NewRootless(t.Context())
	if err != nil {
		needtest.Podman.Skip(t, err)
	}
	Use(t, e)
	return e
}

// Use leads the environment of the test to an engine, and closes it when the test ends.
func Use(t *testing.T, e *podman.Engine) {
	t.Helper()
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("left behind: %v", err)
		}
	})
	for _, v := range e.Env() {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
}
