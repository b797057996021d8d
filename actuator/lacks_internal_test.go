package actuator

import (
	"log/slog"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/laxity/laxity/internal/sandbox"
)

// What a guardian's sandbox keeps from it is told by its actuator, until a guardian comes
// that lacks nothing.
func TestGuardianSaysWhatItLacks(t *testing.T) {
	dir := t.TempDir()
	w := newWatch(Options{StateDir: dir}, slog.New(slog.DiscardHandler))
	for _, lacks := range [][]sandbox.Lack{nil, {{Of: "guardian", What: "pidfd_getfd is refused"}}, {}} {
		if err := (GuardianOptions{StateDir: dir, Lacks: lacks, Logger: slog.New(slog.DiscardHandler)}).keepLacks(); err != nil {
			t.Fatal(err)
		}
		if got := readLacks(dir); !slices.Equal(got, lacks) {
			t.Errorf("%v, want %v", got, lacks)
		}
		w.look(time.Now().Add(time.Hour))
		if len(w.lacks) != 0 {
			t.Errorf("%v of a guardian that is gone", w.lacks)
		}
		w.next = time.Time{}
	}
	if _, err := os.Stat(lacksFile(dir)); err == nil {
		t.Error("a file is left that says nothing")
	}
}
