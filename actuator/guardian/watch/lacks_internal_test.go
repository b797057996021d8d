package watch

import (
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/journal"
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
		if got, err := ReadLacks(dir); err != nil || !slices.Equal(got, lacks) {
			t.Errorf("%v, want %v (%v)", got, lacks, err)
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

// A file that is damaged does not say that the guardian lacks nothing: it is logged, once.
func TestDamagedLacksAreNotNothing(t *testing.T) {
	dir := t.TempDir()
	guardian, err := journal.LockWithin(t.Context(), journal.GuardianLock(dir), 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer guardian.Unlock()
	var log strings.Builder
	w := New(Options{StateDir: dir, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	check := func(text string, logged int) {
		t.Helper()
		if err := os.WriteFile(lacksFile(dir), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		w.next = time.Time{}
		w.Check(time.Now())
		if n := strings.Count(log.String(), "level=ERROR"); n != logged {
			t.Errorf("after %q: logged %d times, want %d: %s", text, n, logged, log.String())
		}
	}
	if _, err := ReadLacks(dir); err != nil {
		t.Errorf("without a file: %v", err)
	}
	check("{", 1)
	if got, err := ReadLacks(dir); err == nil || !strings.Contains(err.Error(), lacksFile(dir)) {
		t.Errorf("%v, %v", got, err)
	}
	check("{", 1)
	check("[]", 1)
	check("{", 2)
}
