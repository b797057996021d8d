package journaltest

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/internal/needtest"
)

// SmallDisk mounts a file system of few inodes at dir until the test ends. fill uses all of them
// up, until free is called. It skips the test where that takes more rights.
func SmallDisk(t *testing.T, dir string) (fill func() (free func())) {
	t.Helper()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "nr_inodes=64,size=1m,mode=0700"); err != nil {
		needtest.Namespaces.Skipf(t, "mounting a small disk takes CAP_SYS_ADMIN: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return func() (free func()) {
		t.Helper()
		ballast := filepath.Join(dir, "ballast")
		if err := os.Mkdir(ballast, 0o700); err != nil {
			t.Fatal(err)
		}
		var err error
		for n := 0; err == nil; n++ {
			err = os.WriteFile(filepath.Join(ballast, strconv.Itoa(n)), nil, 0o600)
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
		return func() {
			t.Helper()
			if err := os.RemoveAll(ballast); err != nil {
				t.Fatal(err)
			}
		}
	}
}
