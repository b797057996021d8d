package cudaprobe

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/laxity/laxity/internal/needtest"
)

// A program that waits in the kernel on purpose does not keep the guard from answering others: a vfork
// waits for its child, whatever is sent to it.
func TestSeizeGivesUpOnWhoWaitsInTheKernel(t *testing.T) {
	source, program := filepath.Join(t.TempDir(), "vfork.c"), filepath.Join(t.TempDir(), "vfork")
	if err := os.WriteFile(source, []byte(`#include <stdio.h>
#include <unistd.h>
int main(void) {
	if (vfork() == 0) {
		write(1, "child\n", 6);
		for (;;)
			pause();
	}
}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cc", "-w", "-o", program, source).CombinedOutput(); err != nil {
		needtest.Compiler.Skipf(t, "%v: %s", err, out)
	}
	cmd := exec.Command(program)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	said, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // the child, too
	if line, err := bufio.NewReader(said).ReadString('\n'); err != nil {
		t.Fatal(line, err)
	}
	pid := cmd.Process.Pid
	nothing := func() error { return nil }
	began := time.Now()
	err = new(attempts).run(pid, func(a *attempt) error { return Call{PID: pid, TID: pid}.seize(a, nothing, nothing) })
	if took := time.Since(began); err == nil || took > seizeWithin*3/4 {
		t.Errorf("%v after %v", err, took)
	}
}
