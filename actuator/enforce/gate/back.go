package gate

import (
	"errors"
	"fmt"
	"time"
)

// ErrUnderWay means that a process of a container creates its context already, or
// has one: it is stopped at its launch only.
var ErrUnderWay = errors.New("it has begun to start up")

// Back stops the processes of a container, those to come among them, before they
// create a context, which the driver does for one process after another on the whole
// machine. It does so until Forth or Admit, or until the gate opens. Those that
// cannot be stopped there any more give ErrUnderWay; the others are stopped all the
// same. See Shut for ErrNotGated.
func (g *Gate) Back(id string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.containers[id]
	if c == nil {
		return fmt.Errorf("container %.12s: %w", id, ErrNotGated)
	}
	v := c.view()
	if v.Obstacle != "" {
		return fmt.Errorf("container %.12s: %w: %s", id, ErrNotGated, v.Obstacle)
	}
	if !c.back {
		c.back = true
		g.tell()
	}
	var err error
	for _, p := range c.processes {
		switch {
		case p.leaving:
		case p.creates && !g.kernel.IsHeld(p.pid):
			err = fmt.Errorf("process %d: %w", p.pid, ErrUnderWay)
		case !p.creates:
			g.note(g.kernel.Back(p.pid))
		}
	}
	return err
}

// Forth ends Back: who stands before its context goes on, up to its launch. It does
// nothing for a container that is not kept back.
func (g *Gate) Forth(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.containers[id]
	if c == nil || !c.back {
		return
	}
	c.back = false
	for _, p := range c.processes {
		g.note(g.kernel.Forth(p.pid))
		if !p.stands.IsZero() {
			g.forth(p)
		}
	}
	g.tell()
}

// forth lets a process go on that stands before its context. For the kernel it is
// admitted meanwhile, or the SIGCONT would be somebody else's. It cannot launch
// before it has that context.
func (g *Gate) forth(p *process) {
	p.stands = time.Time{}
	g.note(g.kernel.Admit(p.pid))
	g.letGo(p)
	if !p.of.admitted && !p.leaving {
		_, err := g.kernel.Shut(p.pid)
		g.note(err)
	}
}
