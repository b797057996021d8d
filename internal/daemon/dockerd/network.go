package dockerd

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Dial connects inside the network of the engine's containers with network mode host. That is
// containerd's network, which nothing outside reaches.
func (e *Engine) Dial(ctx context.Context, network, address string) (c net.Conn, err error) {
	inErr := e.inNetwork(func() error {
		c, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return c, inErr
}

// raiseLoopback sets a new network's loopback interface up.
func (e *Engine) raiseLoopback() error {
	return e.inNetwork(func() error {
		s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(s)
		lo, err := unix.NewIfreq("lo")
		if err != nil {
			return err
		}
		lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
		return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, lo)
	})
}

// inNetwork runs do on a thread in that network, which ends afterwards.
func (e *Engine) inNetwork(do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: nothing else may use this thread
		ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", e.PID()))
		if err == nil {
			err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
			_ = ns.Close()
		}
		if err == nil {
			err = do()
		}
		done <- err
	}()
	return <-done
}
