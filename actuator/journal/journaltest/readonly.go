// Package journaltest is for tests of what keeps a journal.
package journaltest

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/internal/needtest"
)

// ReadOnly makes a folder one that cannot be written, not even by root, until the returned
// function is called or the test ends. It skips the test where that takes more rights.
func ReadOnly(t *testing.T, dir string) (writable func()) {
	t.Helper()
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		needtest.Namespaces.Skipf(t, "mounting a folder read-only takes CAP_SYS_ADMIN: %v", err)
	}
	mounted := true
	writable = func() {
		if mounted {
			mounted = false
			if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(writable)
	if err := unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	return writable
}
