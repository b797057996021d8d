package daemon

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
)

// Program finds a program of Laxity in the folder of this one, or on PATH.
func Program(name string) (string, error) {
	if self, err := os.Executable(); err == nil {
		path := filepath.Join(filepath.Dir(self), name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, nil
		}
	}
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	return "", fmt.Errorf("%s is neither beside this program nor on PATH: make build", name)
}

// FreeAddresses returns n loopback addresses on which no program listens now.
func FreeAddresses(ctx context.Context, n int) ([]string, error) {
	var all []string
	for range n {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // all at the end, so that they differ
		all = append(all, l.Addr().String())
	}
	return all, nil
}
