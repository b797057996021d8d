package check

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/exporter/container/docker/dockertest"
	"github.com/laxity/laxity/internal/enginetest"
)

func TestMain(m *testing.M) {
	engineWithin = time.Minute // however busy this machine is
	m.Run()
}

// Each engine is called by its name, and is well as tests start it.
func TestEngines(t *testing.T) {
	names := map[string]string{"docker": "Docker ", "podman": "Podman "}
	enginetest.Each(t, func(t *testing.T) {
		dockertest.Client(t) // skips without one
		_, name, _ := strings.Cut(t.Name(), "/")
		found := gatherEngine(t.Context(), "").judge(false)
		i := slices.IndexFunc(found, func(f Finding) bool { return f.Name == "engine" })
		if i < 0 || !strings.HasPrefix(found[i].Found, names[name]) {
			t.Errorf("found %+v", found)
		}
		for _, f := range found {
			if f.Level != OK {
				t.Errorf("%+v", f)
			}
		}
	})
}

func TestRootlessPodman(t *testing.T) {
	enginetest.Rootless(t)
	found := gatherEngine(t.Context(), "").judge(false)
	if i := slices.IndexFunc(found, func(f Finding) bool { return f.Name == "rootless" }); i < 0 || found[i].Level != Warn {
		t.Errorf("found %+v", found)
	}
}
