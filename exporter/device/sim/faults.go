package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// faults is what is broken now. Guarded by GPU.mu.
type faults struct {
	driver   string // version
	unloaded bool
	loads    int              // how often a driver was loaded: a reader of an older one must start afresh
	hung     chan struct{}    // closed when reads may go on; nil when they do not hang
	steps    map[string]error // what a step of the checkpoint API, or a call on channels, fails with
}

// HangReads makes every Read block, like a driver call that never returns, until
// the function that it returns is called. Tenants are not affected.
func (g *GPU) HangReads() (release func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.faults.hung == nil {
		g.faults.hung = make(chan struct{})
	}
	hung := g.faults.hung
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.faults.hung == hung {
			close(hung)
			g.faults.hung = nil
		}
	}
}

// FailProcessQuery makes the process list of one card or instance fail with err;
// nil makes it work again.
func (g *GPU) FailProcessQuery(uuid string, err error) error {
	return g.each(uuid, func(u *unit) { u.queryErr = err })
}

// Lose makes a card (with its instances) or one instance fall off the bus: what
// ran there is gone, tenants get errors, and it does not answer until Recover.
func (g *GPU) Lose(uuid string) error {
	return g.each(uuid, func(u *unit) {
		u.lost = true
		g.wipe(u)
	})
}

// Recover undoes Lose.
func (g *GPU) Recover(uuid string) error {
	return g.each(uuid, func(u *unit) { u.lost = false })
}

// UnloadDriver ends every context. Until LoadDriver nothing answers.
func (g *GPU) UnloadDriver() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.faults.unloaded = true
	for _, u := range g.units {
		g.wipe(u)
	}
	g.rearm()
}

// LoadDriver loads a driver; an empty version is the one before. Whoever read
// with the old one gets one error, as NVML does, and then starts afresh.
func (g *GPU) LoadDriver(version string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if version != "" {
		g.faults.driver = version
	}
	g.faults.unloaded = false
	g.loaded = g.advance()
	for _, u := range g.units {
		u.before = u.compute.Energy()
	}
	g.faults.loads++
}

// each calls f for the units that uuid names: itself, or the card's instances.
func (g *GPU) each(uuid string, f func(*unit)) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !slices.ContainsFunc(g.units, func(u *unit) bool { return u.named(uuid) }) {
		return fmt.Errorf("%w: %s", ErrNoDevice, uuid)
	}
	for _, u := range g.units {
		if u.named(uuid) {
			f(u)
		}
	}
	g.rearm()
	return nil
}

func (u *unit) named(uuid string) bool { return u.info.UUID == uuid || u.info.Parent == uuid }

// wipe drops all work and contexts of a unit. The caller holds mu.
func (g *GPU) wipe(u *unit) {
	u.compute.Reset(time.Now())
	for _, c := range u.contexts {
		c.dying = true
	}
	for _, p := range g.procs {
		delete(p.contexts, u)
	}
	u.reap(g.opts)
}

var errReloaded = errors.New("driver was reloaded")
