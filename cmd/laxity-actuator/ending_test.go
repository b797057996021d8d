package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"testing"
)

// ending is a daemon that runs until it is asked to end, and then returns what end does. Without end it
// fails at once.
type ending struct {
	end     func(ctx context.Context) error
	begun   chan struct{}
	failing error
}

func (e ending) Run(ctx context.Context) error {
	close(e.begun)
	if e.end == nil {
		return e.failing
	}
	<-ctx.Done()
	return e.end(ctx)
}
func (ending) Reload(context.Context) error { return nil }
func (ending) Handler() http.Handler        { return http.NotFoundHandler() }

// What the actuator says at its end is not lost, whichever of its parts ends first, and is said once.
func TestErrorOfTheActuatorIsKept(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	const address = "127.0.0.1:0"
	inUse := "web server: listen tcp " + taken.Addr().String() + ": bind: address already in use"
	left, closing := errors.New("containers are still paused"), errors.New("cannot close the inbox")
	for name, tt := range map[string]struct {
		address string
		end     func(context.Context) error
		failing error
		want    string
	}{
		"a signal":                             {address, func(context.Context) error { return nil }, nil, ""},
		"a signal, and containers are left":    {address, func(context.Context) error { return left }, nil, left.Error()},
		"a signal, and a release was given up": {address, func(ctx context.Context) error { return errors.Join(left, ctx.Err()) }, nil, left.Error() + "\ncontext canceled"},
		"it fails":                             {address, nil, closing, closing.Error()},
		"the web server fails":                 {taken.Addr().String(), func(context.Context) error { return nil }, nil, inUse},
		"both fail":                            {taken.Addr().String(), func(context.Context) error { return left }, nil, left.Error() + "\n" + inUse},
	} {
		t.Run(name, func(t *testing.T) {
			s := &serveCommand{listen: []string{tt.address}}
			d := ending{end: tt.end, failing: tt.failing, begun: make(chan struct{})}
			ctx, signal := context.WithCancel(t.Context())
			defer signal()
			done := make(chan error, 1)
			go func() { done <- s.serve(ctx, d, true, slog.New(slog.DiscardHandler)) }()
			<-d.begun
			if tt.address == address && tt.end != nil {
				signal()
			}
			var text string
			if err := <-done; err != nil {
				text = err.Error()
			}
			if text != tt.want {
				t.Errorf("it ended with %q, not with %q", text, tt.want)
			}
		})
	}
}
