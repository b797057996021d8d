package cudatest

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/internal/needtest"
)

// Hold makes whoever accesses a file hang, as on a network file system whose server is down. what is the
// accesses: unix.FAN_OPEN_PERM, unix.FAN_ACCESS_PERM (a read), or both. wait returns once somebody hangs; release
// lets all go on.
func Hold(t *testing.T, path string, what uint64) (wait, release func()) {
	t.Helper()
	const patience = 30 * time.Second
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_CONTENT|unix.FAN_CLOEXEC|unix.FAN_NONBLOCK, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_LARGEFILE)
	if err != nil {
		needtest.Fanotify.Skip(t, err)
	}
	queue := os.NewFile(uintptr(fd), "fanotify")
	release = func() { _ = queue.Close() } // the kernel allows what waits
	t.Cleanup(release)
	if err := unix.FanotifyMark(fd, unix.FAN_MARK_ADD, what, unix.AT_FDCWD, path); err != nil {
		needtest.Fanotify.Skip(t, err)
	}
	return func() {
		t.Helper()
		if err := queue.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		var event [24]byte
		if _, err := queue.Read(event[:]); err != nil {
			t.Fatal("nobody hangs: ", err)
		}
	}, release
}
