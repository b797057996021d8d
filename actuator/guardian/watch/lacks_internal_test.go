package watch

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
	w := New(Options{StateDir: dir, Logger: slog.New(slog.DiscardHandler)})
	for _, lacks := range [][]sandbox.Lack{nil, {{Of: "guardian", What: "pidfd_getfd is refused"}}, {}} {
		if err := KeepLacks(dir, lacks); err != nil {
			t.Fatal(err)
		}
		if got := ReadLacks(dir); !slices.Equal(got, lacks) {
			t.Errorf("%v, want %v", got, lacks)
		}
		w.Check(time.Now().Add(time.Hour))
		if len(w.Lacks()) != 0 {
			t.Errorf("%v of a guardian that is gone", w.Lacks())
		}
		w.next = time.Time{}
	}
	if _, err := os.Stat(lacksFile(dir)); err == nil {
		t.Error("a file is left that says nothing")
	}
}
