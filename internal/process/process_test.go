package process_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/laxity/laxity/internal/process"
)

func TestBegan(t *testing.T) {
	if began := process.Began("/proc", os.Getpid()); time.Since(began) < 0 || time.Since(began) > 24*time.Hour {
		t.Errorf("this process began %v", began)
	}
	proc := t.TempDir()
	if err := os.Mkdir(filepath.Join(proc, "7"), 0o755); err != nil {
		t.Fatal(err)
	}
	const rest = " 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0\n"
	for stat, there := range map[string]bool{"7 (a) b) S" + rest: true, "7 (a) Z" + rest: false, "7 (a) X" + rest: false, "7 (a) S 1\n": false, "": false} {
		if err := os.WriteFile(filepath.Join(proc, "7", "stat"), []byte(stat), 0o600); err != nil {
			t.Fatal(err)
		}
		if began := process.Began(proc, 7); began.IsZero() == there {
			t.Errorf("%q: %v", stat, began)
		}
	}
	if !process.Began(proc, 8).IsZero() {
		t.Error("of no process")
	}
}
