package undo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/pausing"
	"github.com/laxity/laxity/internal/engine"
	"github.com/laxity/laxity/internal/replace"
)

// EngineFile is where an actuator records which container engine it uses. Another engine knows
// none of its containers, and says of each that it is gone.
func EngineFile(stateDir string) string { return filepath.Join(stateDir, "engine") }

// ChangeEngine is RecordEngine for a starting actuator, which holds its lock and has not paused or
// unpaused anything. It logs a record that cannot be read, and replaces it. If another engine is on record, that one first releases what its actuator left
// paused: the new one would say of each container that it is gone, and the kernel would continue it
// while its engine still takes it to be paused. A former engine that does not answer keeps no
// actuator from starting.
func ChangeEngine(ctx context.Context, stateDir string, c engine.Choice, j *journal.Journal, log *slog.Logger) error {
	c, _ = c.Resolve(engine.This)
	former, ok, err := RecordedEngine(stateDir)
	if err != nil {
		log.Error("nobody knows which container engine the former actuator used; if that was another one, what it left paused there stays paused: unpause it by that engine, as docker unpause and ctr task resume do",
			"file", EngineFile(stateDir), "now", c.String(), "err", err)
	}
	if ok {
		former, _ = former.Here(engine.This)
		if !same(former, c) {
			releaseBy(ctx, former, j, log)
		}
	}
	return RecordEngine(stateDir, c)
}

func same(a, b engine.Choice) bool { return slices.Equal(a.Flags(), b.Flags()) }

// formerWait bounds how long a starting actuator waits for the engine of a former one.
const formerWait = 10 * time.Second

// releaseBy tries once to release by a former actuator's engine what that left paused.
func releaseBy(ctx context.Context, former engine.Choice, j *journal.Journal, log *slog.Logger) {
	holds, err := j.List()
	if err != nil {
		log.Error("cannot read what a former actuator left paused", "err", err)
	}
	if len(holds) == 0 {
		return
	}
	p, err := pausing.Open(former, j)
	if err != nil {
		log.Error("cannot release by the engine of the former actuator", "engine", former.String(), "err", err)
		return
	}
	defer func() { _ = p.Close() }()
	ctx, cancel := context.WithTimeout(ctx, formerWait)
	defer cancel()
	var all sync.WaitGroup
	for _, h := range holds {
		all.Go(func() {
			if err := p.Unpause(ctx, h.ContainerID); err != nil && !errors.Is(err, enforce.ErrForeign) {
				log.Error("cannot release a container by the engine of the former actuator; it may have to be unpaused there", "container", h.Container, "engine", former.String(), "err", err)
				return
			}
			log.Warn("released a container that a former actuator had paused by another engine", "container", h.Container, "engine", former.String())
		})
	}
	all.Wait()
}

// RecordEngine records the engine of an actuator, for whoever undoes what that leaves.
func RecordEngine(stateDir string, c engine.Choice) error {
	c, _ = c.Resolve(engine.This)
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return replace.Changed(EngineFile(stateDir), append(text, '\n'), 0o600)
}

// RecordedEngine returns the engine of the last actuator; false if it is not on record.
func RecordedEngine(stateDir string) (c engine.Choice, ok bool, err error) {
	text, err := os.ReadFile(EngineFile(stateDir))
	if errors.Is(err, fs.ErrNotExist) {
		return c, false, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err == nil && c.Kind == "" {
		err = errors.New("it names none")
	}
	if err != nil {
		return engine.Choice{}, false, fmt.Errorf("read which container engine the actuator used: %w", err)
	}
	return c, true, nil
}

// engines releases by the engine that a person chose, else by that of the last actuator: a guardian
// may be older than the actuator that it watches. Without either it chooses once, as an actuator
// does: an engine's socket may be missing while the engine restarts.
type engines struct {
	o       Options
	journal *journal.Journal

	mu     sync.Mutex
	choice engine.Choice
	pauser *pausing.Pauser
	opened []*pausing.Pauser
}

// Unpause implements guardian.Enforcer.
func (e *engines) Unpause(ctx context.Context, id string) error {
	p, _, err := e.open()
	if err != nil {
		return err
	}
	return p.Unpause(ctx, id)
}

// open prepares to release by the engine of now, and says so where that is another one.
func (e *engines) open() (*pausing.Pauser, engine.Choice, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	choice, how, decided := e.decide()
	if e.pauser != nil && (!decided || reflect.DeepEqual(choice, e.choice)) {
		return e.pauser, e.choice, nil
	}
	p, err := pausing.Open(choice, e.journal)
	if err != nil {
		return nil, choice, err
	}
	e.pauser, e.choice, e.opened = p, choice, append(e.opened, p)
	if e.o.Using != nil {
		e.o.Using(choice, how)
	} else {
		e.o.Logger.Info("the container engine", "engine", choice.String(), "because", how)
	}
	return p, choice, nil
}

// decide returns the engine to use, and why. decided is false where the machine's sockets alone
// say so.
func (e *engines) decide() (c engine.Choice, how string, decided bool) {
	if e.o.Engine.Given(engine.This) {
		c, how = e.o.Engine.Resolve(engine.This)
		if how == "" {
			how = "it is given by a flag"
		}
		return c, how, true
	}
	c, ok, err := RecordedEngine(e.o.StateDir)
	if ok {
		c, why := c.Here(engine.This)
		if how = "the last actuator used it (" + EngineFile(e.o.StateDir) + ")"; why != "" {
			how += "; " + why
		}
		return c, how, true
	}
	c, how = e.o.Engine.Resolve(engine.This)
	if err != nil {
		how = fmt.Sprintf("%s (%v)", how, err)
	}
	return c, how, false
}

// close closes all connections; what is paused stays so, on record.
func (e *engines) close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	var errs []error
	for _, p := range e.opened {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}
