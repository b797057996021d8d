package daemon

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
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

// FreeAddresses returns n loopback addresses on which no program listens now. By its default the
// kernel gives their ports to no connection, and to nobody who listens on port 0: so they are still free
// a while later.
func FreeAddresses(ctx context.Context, n int) ([]string, error) {
	var all []string
	for tries := 0; len(all) < n; tries++ {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", fmt.Sprint("127.0.0.1:", nextPort()))
		if errors.Is(err, syscall.EADDRINUSE) && tries < maxTries {
			continue
		}
		if err != nil {
			return nil, err
		}
		defer l.Close() // all at the end, so that they differ
		all = append(all, l.Addr().String())
	}
	return all, nil
}

const (
	firstPort    = 20000
	minPorts     = 1000  // of which to choose
	defaultGiven = 32768 // the first port that the kernel gives, unless it is told otherwise
	maxTries     = 1000
)

// A program begins at a random port, and tries all others before it takes one again.
var (
	begin = rand.Uint32()
	tried atomic.Uint32
)

// nextPort returns the port to try next: one from firstPort on, below those that the kernel gives, or gives
// by default where it gives nearly all.
func nextPort() int {
	given := defaultGiven
	if text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		_, _ = fmt.Sscan(string(text), &given)
	}
	if given < firstPort+minPorts {
		given = defaultGiven
	}
	return firstPort + int((begin+tried.Add(1))%uint32(given-firstPort))
}
