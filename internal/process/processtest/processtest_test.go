package processtest_test

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/internal/process/processtest"
)

const writer = "LAXITY_TEST_WRITER"

// TestMain is also a process whose threads write without end.
func TestMain(m *testing.M) {
	if os.Getenv(writer) == "" {
		os.Exit(m.Run())
	}
	runtime.GOMAXPROCS(4)
	for range 4 {
		go func() {
			for {
				if _, err := os.Stdout.Write([]byte("x")); err != nil {
					os.Exit(1)
				}
			}
		}()
	}
	select {}
}

// After Stop no thread does anything more: what it wrote stays as much.
func TestStop(t *testing.T) {
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env, cmd.Stdout = append(os.Environ(), writer+"=1"), in
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	_ = in.Close()
	buffer := make([]byte, 1<<20) // more than a pipe holds
	written := func() int {
		n, err := unix.IoctlGetInt(int(out.Fd()), unix.TIOCINQ)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for i := range 50 {
		if _, err := out.Read(buffer); err != nil { // it writes, and has room to
			t.Fatal(err)
		}
		processtest.Stop(t, cmd.Process.Pid)
		before := written()
		time.Sleep(2 * time.Millisecond) // the time in which it must not write
		if after := written(); after != before {
			t.Errorf("stop %d: it wrote %d bytes while it was stopped", i, after-before)
		}
		if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
}
