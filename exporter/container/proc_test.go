package container_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/laxity/laxity/exporter/container"
)

func TestOfPID(t *testing.T) {
	const running, zombie = "7 (a) b) S 1 7", "7 (a) b) Z 1 7"
	tests := []struct {
		name   string
		cgroup string
		stat   string
		thread string // cgroup of a second thread
		want   string
		gone   bool
	}{
		{name: "in a container", cgroup: "0::/docker/" + idA + "\n", stat: running, want: idA},
		{name: "on the host", cgroup: "0::/init.scope\n", stat: running},
		{name: "v1 zombie", cgroup: "2:cpu:/\n", stat: zombie, gone: true},
		{name: "v2 zombie", cgroup: "0::/docker/" + idA + "\n", stat: zombie, want: idA},
		{name: "v1 main thread gone", cgroup: "2:cpu:/\n", stat: zombie, thread: "2:cpu:/docker/" + idA + "\n", want: idA},
		{name: "broken stat", cgroup: "0::/\n", stat: "7"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			write(t, filepath.Join(root, "7", "cgroup"), tt.cgroup)
			write(t, filepath.Join(root, "7", "stat"), tt.stat)
			if tt.thread != "" {
				write(t, filepath.Join(root, "7", "task", "8", "cgroup"), tt.thread)
			}
			id, ok, err := container.Proc(root).OfPID(7)
			if id != tt.want || ok != (tt.want != "") || errors.Is(err, fs.ErrNotExist) != tt.gone || (err != nil) != tt.gone {
				t.Errorf("got %q, %v, %v", id, ok, err)
			}
		})
	}
}

func TestOfPIDNoSuchProcess(t *testing.T) {
	if _, _, err := container.Proc(t.TempDir()).OfPID(7); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want fs.ErrNotExist", err)
	}
}

func TestOfPIDThisProcess(t *testing.T) {
	if _, _, err := container.Proc("/proc").OfPID(os.Getpid()); err != nil {
		t.Error(err)
	}
}

// A process that was reaped is gone, whatever the kernel says while it goes.
func TestOfPIDReaped(t *testing.T) {
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("/proc/" + strconv.Itoa(cmd.Process.Pid)); err == nil {
		t.Skip("the PID was reused at once")
	}
	if _, _, err := container.Proc("/proc").OfPID(cmd.Process.Pid); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want fs.ErrNotExist", err)
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
