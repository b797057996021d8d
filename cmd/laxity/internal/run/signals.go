package run

import (
	"context"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/laxity/laxity/actuator/admission"
	"github.com/laxity/laxity/actuator/placement/api"
)

// patience bounds a call to the actuator before the container is made. The actuator may ask many nodes meanwhile.
const patience = 30 * time.Second

// bounded are Placements whose calls before docker starts end after patience.
type bounded struct{ Placements }

func (b bounded) Place(ctx context.Context, w api.Wanted) (api.Placed, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return b.Placements.Place(ctx, w)
}

func (b bounded) Check(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return b.Placements.Check(ctx, id)
}

func (b bounded) Admission(ctx context.Context, q admission.Question) (admission.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return b.Placements.Admission(ctx, q)
}

// grace is how long a reservation may take to be released after a signal.
const grace = 2 * time.Second

// cleanupContext returns a context for what must be done although ctx has ended. hurry ends it after grace.
func cleanupContext(ctx context.Context) (cleanup context.Context, hurry func()) {
	cleanup, cancel := context.WithCancel(context.WithoutCancel(ctx))
	return cleanup, func() { time.AfterFunc(grace, cancel) }
}

// untilSignal returns a context that the first signal cancels, for what is done while docker does not run; hurry is
// called then. settle ends the watch and returns that signal; nil if none came.
func (r *Runner) untilSignal(ctx context.Context, hurry func()) (asking context.Context, settle func() os.Signal) {
	asking, cancel := context.WithCancel(ctx)
	var first os.Signal
	settled, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case first = <-r.Signals:
			cancel()
			hurry()
		case <-settled:
		}
	}()
	return asking, sync.OnceValue(func() os.Signal {
		close(settled)
		<-ended
		cancel()
		if first == nil && len(r.Signals) > 0 {
			first = <-r.Signals
			hurry()
		}
		return first
	})
}

// interrupted is the exit code, as a shell's, and the error after a signal that came before docker started.
func interrupted(s os.Signal) (int, error) {
	code := ExitFailed
	if n, ok := s.(syscall.Signal); ok {
		code = 128 + int(n)
	}
	return code, fmt.Errorf("a signal came (%v): no container was created", s)
}
