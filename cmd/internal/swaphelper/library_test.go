package swaphelper_test

import (
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/enforce/checkpoint"
	"github.com/laxity/laxity/cmd/internal/swaphelper"
)

// A helper that can neither find nor make the simulated GPU's library says so at once.
// It ended without an answer, and who had started it waited half a minute for one.
func TestHelperSaysThatItHasNoLibrary(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", "/proc/none")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h := checkpoint.NewHelper(checkpoint.HelperOptions{Command: []string{self, swaphelper.Name, "--device=sim:/nowhere"}, Logger: slog.New(slog.DiscardHandler)})
	defer h.Close()
	if _, err := h.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "/proc/none") {
		t.Errorf("the helper says %v", err)
	}
}

// What kept a helper from loading the library may be over: another one tries.
func TestHelperWithoutLibraryIsReplaced(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", "/proc/none")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h := checkpoint.NewHelper(checkpoint.HelperOptions{Command: []string{self, swaphelper.Name, "--device=sim:/nowhere"}, Again: time.Nanosecond, Logger: slog.New(slog.DiscardHandler)})
	defer h.Close()
	if _, err := h.Start(t.Context()); err == nil {
		t.Fatal("it has a library")
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	if _, err := h.Start(t.Context()); err != nil && strings.Contains(err.Error(), "/proc/none") {
		t.Errorf("the same helper is asked: %v", err)
	}
}
