package exporter_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/laxity/laxity/exporter"
)

func TestStat(t *testing.T) {
	p := exporter.NewProcesses("")
	before := time.Now()
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	stat, err := p.Stat(pid)
	if err != nil {
		t.Fatal(err)
	}
	// The kernel counts in hundredths of a second, and rounds down.
	if stat.Born.Before(before.Add(-20*time.Millisecond)) || stat.Born.After(time.Now()) {
		t.Errorf("born %v after the call that began it", stat.Born.Sub(before))
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); ; {
		stat, err := p.Stat(pid)
		if err != nil || time.Now().After(end) {
			t.Fatalf("state %c, %v; want T", stat.State, err)
		}
		if stat.State == 'T' {
			break
		}
	}
	if _, err := p.Stat(1 << 30); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a process that does not exist: %v", err)
	}
	if _, err := p.Stat(os.Getpid()); err != nil {
		t.Error(err)
	}
}
