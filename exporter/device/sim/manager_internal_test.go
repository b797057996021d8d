package sim

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestMain is a manager that has connected, and does nothing, too.
func TestMain(m *testing.M) {
	if socket := os.Getenv("LAXITY_TEST_CONNECT"); socket != "" {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			panic(err)
		}
		_, _ = conn.Read(make([]byte, 1)) // nobody answers
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// No request of a manager comes into effect after its process has ended.
func TestManagerThatEnded(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "LAXITY_TEST_CONNECT="+socket)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	caller, err := peerOf(conn)
	if err != nil {
		t.Fatal(err)
	}
	defer caller.Close()
	g, err := New(Options{Channels: ChannelCost{Find: -1}})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Attach(1).Exit()
	ctx := context.WithValue(t.Context(), callerKey{}, caller)
	if _, err := g.Groups(ctx, Tenant{PID: 1}); err != nil {
		t.Errorf("while it lives: %v", err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if _, err := g.Groups(ctx, Tenant{PID: 1}); !errors.Is(err, ErrExited) {
		t.Errorf("after its end: %v", err)
	}
}
