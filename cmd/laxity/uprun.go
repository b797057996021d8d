package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"

	"github.com/oklog/run"
	"github.com/prometheus/exporter-toolkit/web"

	"github.com/laxity/laxity/cmd/internal/view"
	"github.com/laxity/laxity/cmd/laxity/internal/allinone"
	"github.com/laxity/laxity/internal/plain"
	"github.com/laxity/laxity/internal/webserver"
)

// listeners are the addresses of laxity up: the exporter's, as its flags say, and the
// actuator's.
type listeners struct {
	flags              *web.FlagConfig
	exporter, actuator []net.Listener
}

// listen opens the addresses. Sockets that systemd opened are the exporter-toolkit's.
func listen(ctx context.Context, flags *web.FlagConfig, actuator string) (l listeners, err error) {
	l.flags = flags
	open := func(address, flag string) (net.Listener, error) {
		n, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
		if err != nil {
			l.close()
			return nil, fmt.Errorf("%w (choose another address with --%s)", err, flag)
		}
		return n, nil
	}
	n, err := open(actuator, "actuator.listen-address")
	if err != nil {
		return l, err
	}
	l.actuator = append(l.actuator, n)
	if *flags.WebSystemdSocket {
		return l, nil
	}
	for _, address := range *flags.WebListenAddresses {
		if n, err = open(address, "web.listen-address"); err != nil {
			return l, err
		}
		l.exporter = append(l.exporter, n)
	}
	return l, nil
}

// exporterAddress is where the exporter listens; systemd's sockets have the address of the flag.
func (l listeners) exporterAddress() string {
	if len(l.exporter) == 0 {
		return (*l.flags.WebListenAddresses)[0]
	}
	return l.exporter[0].Addr().String()
}

func (l listeners) close() {
	for _, n := range append(l.exporter, l.actuator...) {
		n.Close()
	}
}

// upRun is one run of laxity up.
type upRun struct {
	stack *allinone.Stack
	web   listeners
	out   io.Writer
	// talks: a person reads, so that it says what happens; otherwise it logs alone.
	talks, dryRun bool
	// page is its URL. token is the file of the token; empty: clients authenticate otherwise.
	page, token string
	log         *slog.Logger
}

// run runs all parts until ctx ends or one of them fails, then ends the others.
func (u upRun) run(ctx context.Context) error {
	if u.stack.Socket != "" && !u.talks {
		u.log.Info("the GPU is simulated: laxity sim run starts containers on it", "socket", u.stack.Socket)
	}
	var d *door
	if u.talks {
		d = newDoor(u)
	}
	var g run.Group
	part := func(do func(context.Context) error) {
		// Of ctx only the first part below is told: the others end in the order of the group.
		partCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
		g.Add(func() error { return do(partCtx) }, func(error) { stop() })
	}
	part(func(partCtx context.Context) error { // a signal ends the group, and the group ends this
		select {
		case <-ctx.Done():
			if d != nil {
				d.held = heldNow(u.stack.Actuator.State()) // before anything is released
			}
		case <-partCtx.Done():
		}
		return nil
	})
	part(u.stack.Run)
	serve := func(h http.Handler, flags *web.FlagConfig, on []net.Listener) {
		server := webserver.New(h, u.log)
		g.Add(func() error {
			err := web.ServeMultiple(on, server, flags, u.log)
			if len(on) == 0 {
				err = web.ListenAndServe(server, flags, u.log)
			}
			if errors.Is(err, http.ErrServerClosed) {
				return nil
			}
			return fmt.Errorf("listen on %v: %w", *flags.WebListenAddresses, err)
		}, func(error) { _ = server.Close() })
	}
	serve(u.stack.Exporter.Handler(), u.web.flags, u.web.exporter)
	second := *u.web.flags
	second.WebSystemdSocket = new(bool)
	serve(u.stack.Actuator.Handler(), &second, u.web.actuator)
	if d == nil {
		return g.Run()
	}
	told := make(chan struct{})
	tell, stop := context.WithCancel(context.WithoutCancel(ctx))
	go func() { defer close(told); d.tell(tell, ctx.Done()) }()
	err := g.Run()
	stop()
	<-told // what happened at the end is told too
	d.goodbye(err)
	return err
}

// talks reports whether a person reads the output, and did not ask for a log.
func (c *cli) talks() bool { return view.IsTerminal(c.out) && !c.logFormatChosen }

// line writes a line for a person.
func line(w io.Writer, format string, args ...any) {
	fmt.Fprintln(w, plain.Line(fmt.Sprintf(format, args...)))
}
