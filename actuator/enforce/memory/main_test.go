package memory_test

import (
	"os"
	"syscall"
	"testing"
)

// TestMain leaves the session of the shell that runs the tests: it has job
// control, and the guard lets alone what runs under such a shell.
func TestMain(m *testing.M) {
	if os.Getenv(guardFolder) != "" {
		beGuard()
		return
	}
	_, _ = syscall.Setsid() // it fails for the leader of a group, whose session it may be already
	os.Exit(m.Run())
}
