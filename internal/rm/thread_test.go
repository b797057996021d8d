package rm

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/internal/needtest"
)

// withoutFirstThread says that this program is to end its first thread, and to go on until its standard input is closed.
const withoutFirstThread = "LAXITY_TEST_WITHOUT_FIRST_THREAD"

func init() {
	if os.Getenv(withoutFirstThread) == "" {
		return
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	for range 2 { // threads that end soon
		go func() {
			for range time.Tick(100 * time.Microsecond) {
				go runtime.LockOSThread()
			}
		}()
	}
	_, _ = os.Stdout.WriteString("ends\n")
	_, _, _ = unix.Syscall(unix.SYS_EXIT, 0, 0, 0) // of the first thread: init runs there
}

// A process whose first thread has ended lives as long as another one goes on.
func TestWithoutFirstThread(t *testing.T) {
	if os.Geteuid() != 0 {
		needtest.Root.Skip(t, "others may not read the descriptors of a process whose first thread has ended")
	}
	child := exec.CommandContext(t.Context(), os.Args[0]) //nolint:gosec // this program
	child.Env = append(os.Environ(), withoutFirstThread+"=1")
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	s, pid := &system{}, child.Process.Pid
	for end := time.Now().Add(30 * time.Second); another(pid) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("its first thread does not end")
		}
	}
	if stat, err := s.Stat(pid); err != nil || stat.Exiting {
		t.Errorf("%+v, %v", stat, err)
	}
	for range 1000 {
		if _, fds, err := entries(t.Context(), pid); !errors.Is(err, ErrChanged) && (err != nil || len(fds) < 3) {
			t.Fatalf("its descriptors are %v, %v", fds, err)
		}
	}
	pidfd, err := s.Pidfd(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(pidfd)
	t.Run("duplicates", func(t *testing.T) {
		if _, err := s.Duplicate(pidfd, 0); errors.Is(err, ErrUnsupported) {
			needtest.Tracing.Skip(t, err)
		}
		// Its threads may end one after another for so long that a try fails.
		for got, end := 0, time.Now().Add(30*time.Second); got < 100; {
			switch dup, err := s.Duplicate(pidfd, 0); {
			case err == nil:
				got++
				_ = s.Close(dup)
			case !errors.Is(err, ErrChanged):
				t.Fatal(err)
			case time.Now().After(end):
				t.Fatalf("%d duplicates within 30 s", got)
			}
		}
		if _, err := s.Duplicate(pidfd, 999); !errors.Is(err, ErrChanged) {
			t.Errorf("a descriptor that is closed: %v", err)
		}
	})
	ends(t, child, stdin, pidfd)
}
