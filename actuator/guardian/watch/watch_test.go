package watch_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/guardian/watch"
)

// A guardian that ends at once is told at once, and what it wrote stays when the next one is started.
func TestAGuardianThatFails(t *testing.T) {
	dir := t.TempDir()
	w := watch.New(watch.Options{
		Mode: watch.Spawn, StateDir: dir, Logger: slog.New(slog.DiscardHandler),
		Command: []string{"/bin/sh", "-c", "echo no engine; exit 3"},
	})
	log := filepath.Join(dir, "guardian.log")
	for i := 1; i <= 2; i++ {
		began := time.Now()
		err := w.Start(t.Context())
		if err == nil || !strings.Contains(err.Error(), log) {
			t.Errorf("it answers %v, which does not name %s", err, log)
		}
		if took := time.Since(began); took > 5*time.Second { // half of what one may take to come up
			t.Errorf("it took %v to say so", took)
		}
		text, err := os.ReadFile(log)
		if n := strings.Count(string(text), "no engine"); err != nil || n != i {
			t.Errorf("after start %d the log says %q, %v", i, text, err)
		}
	}
}
