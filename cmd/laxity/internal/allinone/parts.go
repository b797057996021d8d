package allinone

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/oklog/run"
)

// part is one of the parts of a stack.
type part struct {
	name string
	run  func(context.Context) error
	// always: its error counts also after it was told to end. What the others return then says no more
	// than that.
	always bool
}

// runParts runs parts until ctx ends or one of them does, then tells the others to end and waits for
// them.
func runParts(ctx context.Context, parts ...part) error {
	var g run.Group
	var mu sync.Mutex
	var said []error
	add := func(p part) {
		partCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		g.Add(func() error {
			if err := p.run(partCtx); err != nil && (p.always || partCtx.Err() == nil) {
				mu.Lock() // g.Run returns only the error of the first that ends
				defer mu.Unlock()
				said = append(said, fmt.Errorf("%s: %w", p.name, err))
			}
			return nil
		}, func(error) { cancel() })
	}
	add(part{name: "signal", run: func(partCtx context.Context) error { // it ends the others, and they it
		select {
		case <-ctx.Done():
		case <-partCtx.Done():
		}
		return nil
	}})
	for _, p := range parts {
		add(p)
	}
	_ = g.Run() // no part returns an error to it
	return errors.Join(said...)
}
