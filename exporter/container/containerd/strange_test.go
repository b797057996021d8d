package containerd

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/laxity/laxity/internal/ctrd"
)

// Whoever starts many short containers under ids of their own must not make the exporter grow.
func TestStrangeIDsAreForgotten(t *testing.T) {
	e := &Engine{log: slog.New(slog.DiscardHandler), strange: map[string]bool{}}
	for n := range 5000 {
		id := fmt.Sprint("typed-", n)
		if e.known(ctrd.Container{ID: id}) {
			t.Fatalf("%s is watched", id)
		}
		if !e.strange[id] || len(e.strange) > mostStrange {
			t.Fatalf("after %d: %d ids are remembered", n+1, len(e.strange))
		}
	}
}
