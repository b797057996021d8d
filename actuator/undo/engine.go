package undo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"sync"

	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/pausing"
	"github.com/laxity/laxity/internal/engine"
	"github.com/laxity/laxity/internal/replace"
)

// engineFile is where an actuator records which container engine it uses. Another engine knows
// none of its containers, and says of each that it is gone.
func engineFile(stateDir string) string { return filepath.Join(stateDir, "engine") }

// RecordEngine records the engine of an actuator, for whoever undoes what that leaves. A starting
// actuator calls it with its lock held, before it changes anything.
func RecordEngine(stateDir string, c engine.Choice) error {
	c, _ = c.Resolve(engine.This)
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if former, err := os.ReadFile(engineFile(stateDir)); err == nil && bytes.Equal(former, text) {
		return nil // the disk may be full
	}
	return replace.File(engineFile(stateDir), text, 0o600)
}

// recordedEngine returns the engine of the last actuator; false if it is not on record.
func recordedEngine(stateDir string) (c engine.Choice, ok bool, err error) {
	text, err := os.ReadFile(engineFile(stateDir))
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
	c, ok, err := recordedEngine(e.o.StateDir)
	if ok {
		return c, "the last actuator used it (" + engineFile(e.o.StateDir) + ")", true
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
