package exporter_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
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
	if stat, err := p.Stat(pid); err != nil || stat.Exiting {
		t.Errorf("a process that is stopped: %+v, %v", stat, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); ; {
		stat, err := p.Stat(pid) // nobody has waited for it, so it is there
		if err != nil || time.Now().After(end) {
			t.Fatalf("killed: %+v, %v; want one that exits", stat, err)
		}
		if stat.Exiting {
			break
		}
	}
	if _, err := p.Stat(1 << 30); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a process that does not exist: %v", err)
	}
	if stat, err := p.Stat(os.Getpid()); err != nil || stat.MPSServer {
		t.Error(stat, err)
	}
}

// An MPS server is known by its name, as the kernel has it.
func TestStatOfAnMPSServer(t *testing.T) {
	for line, want := range map[string]bool{
		"7 (nvidia-cuda-mps) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20":                true,
		"7 (nvidia-cuda-mp) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20":                 false,
		"7 (a) (nvidia-cuda-mps) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20":            false,
		"7 (python) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 (nvidia-cuda-mps) S 1 2": false,
	} {
		dir := t.TempDir()
		if err := errors.Join(os.Mkdir(filepath.Join(dir, "7"), 0o700), os.WriteFile(filepath.Join(dir, "7", "stat"), []byte(line), 0o600)); err != nil {
			t.Fatal(err)
		}
		if stat, err := exporter.NewProcesses(dir).Stat(7); err != nil && want || stat.MPSServer != want {
			t.Errorf("%s: %+v, %v", line, stat, err)
		}
	}
}
