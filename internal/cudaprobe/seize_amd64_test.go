package cudaprobe

import (
	"bufio"
	"io"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/laxity/laxity/internal/cudaprobe/cudatest"
)

// A program that waits in the kernel on purpose does not keep the guard from answering others: a vfork
// waits for its child, whatever is sent to it.
func TestSeizeGivesUpOnWhoWaitsInTheKernel(t *testing.T) {
	pid, said := startGroup(t, cudatest.Compile(t, `#include <stdio.h>
#include <unistd.h>
int main(void) {
	if (vfork() == 0) {
		write(1, "child\n", 6);
		for (;;)
			pause();
	}
}
`))
	if line, err := bufio.NewReader(said).ReadString('\n'); err != nil {
		t.Fatal(line, err)
	}
	nothing := func() error { return nil }
	began := time.Now()
	err := new(attempts).run(pid, func(a *attempt) error { return Call{PID: pid, TID: pid}.seize(a, nothing, nothing) })
	if took := time.Since(began); err == nil || took > seizeWithin*3/4 {
		t.Errorf("%v after %v", err, took)
	}
}

// startGroup starts a program, which is killed with its children when the test ends. It returns what it prints.
func startGroup(t *testing.T, program string, args ...string) (pid int, said io.Reader) {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	said, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait() // it was killed
	})
	return cmd.Process.Pid, said
}
