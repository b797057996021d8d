package actuator_test

import (
	"strings"
	"testing"

	"github.com/laxity/laxity/actuator/guardian/strays"
)

// What the guardian's sweeper had to continue is told from the start on, and by the
// next actuator too.
func TestStrayStopsAreCounted(t *testing.T) {
	b := newBench(t, nil)
	counts := func(n string) func() bool {
		return func() bool {
			_, body := b.get("/metrics")
			return strings.Contains(body, "\nlaxity_actuator_stray_stops_total "+n+"\n")
		}
	}
	b.await("0 is told", counts("0"))
	if err := strays.Add(b.dir, 2); err != nil {
		t.Fatal(err)
	}
	b.await("2 are told", counts("2"))
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	b.restart(nil)
	b.await("2 are told after a restart", counts("2"))
}
