package sim

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
)

// Listen returns a listener for Serve on a unix socket at path, of at most 107
// bytes, that anybody may connect to: tenants run as whoever their image says.
// A socket that a server before this one left there is removed, so the folder
// must be ours. Closing the listener removes the socket.
func Listen(ctx context.Context, path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("socket of the simulated GPU: %w", err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}
