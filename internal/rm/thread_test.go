package rm

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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
	_, _ = os.Stdout.WriteString("ends\n")
	_, _, _ = unix.Syscall(unix.SYS_EXIT, 0, 0, 0) // of the first thread: init runs there
}

// A process whose first thread has ended lives as long as another one goes on.
func TestWithoutFirstThread(t *testing.T) {
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
	if fds, err := s.Descriptors(pid); err != nil || len(fds) > 0 {
		t.Errorf("descriptors of the control device: %v, %v", fds, err)
	}
	pidfd, err := s.Pidfd(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(pidfd)
	switch dup, err := s.Duplicate(pidfd, 0); {
	case errors.Is(err, ErrUnsupported):
		t.Logf("not here: %v", err)
	case err != nil:
		t.Error(err)
	default:
		_ = s.Close(dup)
		if _, err := s.Duplicate(pidfd, 999); !errors.Is(err, ErrChanged) {
			t.Errorf("a descriptor that is closed: %v", err)
		}
	}
	_ = stdin.Close()
	if err := child.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := s.Duplicate(pidfd, 0); !errors.Is(err, ErrGone) {
		t.Errorf("a process that ended: %v", err)
	}
}
