package sim_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laxity/laxity/exporter/device/sim"
)

func TestListenWhereAServerWasKilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gpu.sock")
	killed, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	killed.(*net.UnixListener).SetUnlinkOnClose(false)
	killed.Close()

	l, err := sim.Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o666 {
		t.Errorf("mode %v: tenants may run as anybody", info.Mode())
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	l.Close()
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the socket stays: %v", err)
	}
}

func TestListenTooLong(t *testing.T) {
	if _, err := sim.Listen(t.Context(), filepath.Join(t.TempDir(), strings.Repeat("x", 108))); err == nil {
		t.Error("no error for a path that the kernel cannot take")
	}
}
