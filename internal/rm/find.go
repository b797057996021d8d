package rm

import (
	"context"
	"errors"
	"fmt"
)

// Find returns the compute channel groups of a process, on all GPUs, sorted by client and handle;
// none if it has no context, or none that computes. ErrGone means that the process is gone or
// exits.
//
// With ErrUnfinished it returns the groups that it has found so far, and there may be more. Call it
// again some 50 ms later: the search continues. That is so while a descriptor of the process has no
// client and not all handles have been tried, newest first. Options.SearchRate bounds the handles
// of all searches together.
//
// A process with more descriptors, clients or objects than any program needs is ErrUnsupported, and
// is searched again a minute later at the earliest.
//
// What it costs, in system calls of 2 to 3 µs: a look at every descriptor of the process;
// one for each client handle, newest first, until each descriptor of the control device
// has its client, of a process that is younger than a Mark for each handle since; then
// Options.Gap and some 200 for each client found. A later Find asks for what it knows, and
// for the objects that follow: about 100 for a client of libcuda with one group. See README.md for what
// that misses, and until when.
func (m *Manager) Find(ctx context.Context, p Process) ([]Group, error) {
	groups, err := m.find(ctx, p)
	if errors.Is(err, ErrGone) {
		m.forget(p)
	}
	return groups, err
}

// find works in steps, each of which is one call on a worker. Only steps read and write what is
// known of the process, in their order.
func (m *Manager) find(ctx context.Context, p Process) (groups []Group, err error) {
	step := func(work func(ctx context.Context) error) error {
		return m.do(ctx, "find", p.PID, func(ctx context.Context, _ func() bool) error {
			return m.bounded(p, func() error { return work(ctx) })
		})
	}
	if err := step(func(ctx context.Context) error { return m.begin(ctx, p) }); err != nil {
		return nil, err
	}
	for searched, dug := true, false; ; {
		var now round
		if err := step(func(ctx context.Context) (err error) {
			now, err = m.round(ctx, p, dug)
			return err
		}); err != nil {
			return groups, err
		}
		if now.open > 0 && now.asked > 0 && !now.found {
			continue
		}
		if searched || now.found {
			var all []Group // not shared: an abandoned step may still write to it
			lost := false
			if err := step(func(ctx context.Context) (err error) {
				all, lost, err = m.findGroups(ctx, p)
				return err
			}); err != nil {
				return nil, err
			}
			groups, searched = all, false
			if lost {
				if err := step(func(ctx context.Context) error { return m.begin(ctx, p) }); err != nil {
					return nil, err
				}
				continue
			}
		}
		switch {
		case now.open > 0 && now.asked > 0:
		case now.open > 0:
			return groups, fmt.Errorf("find the clients of %v: %w: %d handles are left", p, ErrUnfinished, now.left)
		case len(groups) > 0 || dug:
			return groups, nil
		default: // handles that are unlikely to be clients
			dug = true
		}
	}
}
