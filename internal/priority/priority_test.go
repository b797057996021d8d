package priority_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/internal/needtest"
	"github.com/laxity/laxity/internal/priority"
)

// child is set in a process that raises its priority, to this: the test's own is
// not to change. With nobody it is an unprivileged user first.
const (
	child  = "LAXITY_TEST_NICE"
	nobody = "LAXITY_TEST_NOBODY"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(child); text != "" {
		if err := raise(text); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// raise raises, and prints the nice values of all threads, old and new.
func raise(text string) error {
	nice, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	if os.Getenv(nobody) != "" {
		if err := syscall.Setuid(65534); err != nil {
			return err
		}
	}
	stop, ready := make(chan struct{}), make(chan struct{})
	defer close(stop)
	thread := func() {
		runtime.LockOSThread()
		ready <- struct{}{}
		<-stop
	}
	for range 8 {
		go thread()
		<-ready
	}
	if err := priority.Raise(nice); err != nil {
		return err
	}
	for range 8 {
		go thread()
		<-ready
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range threads {
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			return err
		}
		raw, err := unix.Getpriority(unix.PRIO_PROCESS, id)
		if err != nil {
			return err
		}
		fmt.Println(20 - raw)
	}
	return nil
}

func run(t *testing.T, nice int, session bool, env ...string) (string, error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", child, nice), "GORACE=atexit_sleep_ms=0")
	cmd.Env = append(cmd.Env, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: session}
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}

func TestRaise(t *testing.T) {
	raw, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		t.Fatal(err)
	}
	if raw != 20 {
		t.Skip("the test does not run with nice value 0")
	}
	if _, err := run(t, -1, false); err != nil {
		needtest.Root.Skip(t, "may not raise priorities here")
	}
	for nice, want := range map[int]string{-10: "-10", -1: "-1", 5: "0"} {
		for _, session := range []bool{false, true} {
			out, err := run(t, nice, session)
			if err != nil {
				t.Fatalf("nice %d: %s, %v", nice, out, err)
			}
			values := strings.Fields(out)
			if len(values) < 16 {
				t.Errorf("%d threads", len(values))
			}
			for _, v := range values {
				if v != want {
					t.Errorf("nice %d: threads have %v, want %s", nice, values, want)
					break
				}
			}
		}
	}
}

func TestNotPermitted(t *testing.T) {
	if os.Geteuid() != 0 {
		needtest.Root.Skip(t, "takes root, to become somebody else")
	}
	out, err := run(t, -10, true, nobody+"=1")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || out != priority.ErrNotPermitted.Error() {
		t.Errorf("%q, %v", out, err)
	}
}
