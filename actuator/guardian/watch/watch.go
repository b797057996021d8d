// Package watch checks that a guardian watches the actuator, and starts one if so configured.
package watch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/internal/sandbox"
)

// Mode says what to do when no guardian watches.
type Mode string

// The modes.
const (
	Require Mode = "require" // refuse to start; hold nothing while it is away
	Warn    Mode = "warn"    // report it, and act
	Spawn   Mode = "spawn"   // start one; hold nothing while that does not work
)

// Options of a Watch.
type Options struct {
	Mode Mode
	// Command is what Spawn starts.
	Command []string
	// StateDir is the actuator's, and the guardian's.
	StateDir string
	// Off: nothing is ever held, so no guardian is needed.
	Off    bool
	Logger *slog.Logger
}

// Watch keeps a guardian running. One goroutine calls Check.
type Watch struct {
	o   Options
	log *slog.Logger

	up       atomic.Bool
	alone    atomic.Bool    // Spawn brought no new guardian up within spawnPatience
	gone     time.Time      // when Check first found no guardian; zero while one watches
	next     time.Time      // of the next check
	lacks    []sandbox.Lack // the guardian's
	unread   string         // why they could not be read at the last check, so that it is logged once
	spawned  time.Time
	starting atomic.Bool
}

const (
	watchEvery = time.Second
	spawnWait  = 10 * time.Second
	// spawnPatience is how long we hold on without a guardian while we start another one. A guardian
	// is up within 0.1 s, on a busy machine within a second or two, and Check sees it at most a second
	// later: there is time for two tries. Meanwhile what is held is at risk if this process is killed.
	spawnPatience = 5 * time.Second
	logMost       = 1 << 20
)

// New returns a watch; call Start first.
func New(o Options) *Watch { return &Watch{o: o, log: o.Logger} }

// Up reports whether a guardian watched at the last check.
func (w *Watch) Up() bool { return w.up.Load() }

// Lacks are the rights that the guardian's sandbox withholds.
func (w *Watch) Lacks() []sandbox.Lack { return w.lacks }

// MayHold reports whether containers may be held now. Spawn may hold while the guardian is being
// replaced, but not for longer than spawnPatience.
func (w *Watch) MayHold() bool {
	return w.o.Off || w.up.Load() || w.o.Mode == Warn || w.o.Mode == Spawn && !w.alone.Load()
}

// Start is called once, with the actuator's lock held: a guardian started while that lock is free
// may end at once.
func (w *Watch) Start(ctx context.Context) error {
	if w.o.Off {
		return nil
	}
	w.up.Store(journal.Taken(journal.GuardianLock(w.o.StateDir)))
	if w.up.Load() {
		return nil
	}
	switch w.o.Mode {
	case Require:
		return fmt.Errorf("no guardian watches %s; start `laxity-actuator guardian --state-dir=%s` first, or use --guardian=spawn", w.o.StateDir, w.o.StateDir)
	case Warn:
		w.log.Warn("no guardian watches: if this process is killed, containers that it paused stay paused", "state_dir", w.o.StateDir)
		return nil
	}
	if err := w.spawn(); err != nil {
		return err
	}
	deadline := time.Now().Add(spawnWait)
	for {
		ended := !w.starting.Load() // read first: one that has ended does not watch later
		if journal.Taken(journal.GuardianLock(w.o.StateDir)) {
			break
		}
		if ended {
			return fmt.Errorf("the guardian ended as soon as it began; its log, %s, says why", w.logPath())
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the guardian did not come up within %v; its log is %s", spawnWait, w.logPath())
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
	w.up.Store(true)
	return nil
}

func (w *Watch) logPath() string { return filepath.Join(w.o.StateDir, "guardian.log") }

// openLog opens the guardian's log. What the last one wrote stays, for it may say why that ended, up to
// logMost bytes.
func (w *Watch) openLog() (*os.File, error) {
	mode := os.O_APPEND
	if info, err := os.Stat(w.logPath()); err == nil && info.Size() > logMost {
		mode = os.O_TRUNC
	}
	out, err := os.OpenFile(w.logPath(), os.O_CREATE|os.O_WRONLY|mode, 0o600)
	if err != nil {
		return nil, fmt.Errorf("guardian's log: %w", err)
	}
	return out, nil
}

// spawn starts a guardian in a session of its own, so that neither Ctrl-C nor the end of our
// terminal ends it.
func (w *Watch) spawn() error {
	out, err := w.openLog()
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(w.o.Command[0], w.o.Command[1:]...) //nolint:noctx // it must outlive us
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the guardian: %w", err)
	}
	w.log.Info("guardian started", "pid", cmd.Process.Pid, "log", w.logPath())
	w.starting.Store(true)
	go func() {
		err := cmd.Wait() // reaps it
		w.starting.Store(false)
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			w.log.Warn("the guardian ended", "err", err, "log", w.logPath())
		}
	}()
	return nil
}

// Check checks once a second, and restarts the guardian with Spawn.
func (w *Watch) Check(now time.Time) {
	if w.o.Off || now.Before(w.next) {
		return
	}
	w.next = now.Add(watchEvery)
	was := w.up.Load()
	up := journal.Taken(journal.GuardianLock(w.o.StateDir))
	w.up.Store(up)
	w.lacks = nil
	if up {
		w.readLacks()
	}
	switch {
	case up && !was:
		w.log.Info("a guardian watches")
	case !up && was:
		w.log.Warn("the guardian is gone: what is paused now stays paused if this process is killed", "mode", string(w.o.Mode))
	}
	switch {
	case up:
		w.gone = time.Time{}
	case w.gone.IsZero():
		w.gone = now
	}
	alone := w.o.Mode == Spawn && !up && now.Sub(w.gone) >= spawnPatience
	if was := w.alone.Swap(alone); alone && !was {
		w.log.Error("no new guardian came up: nothing is held until one watches", "waited", now.Sub(w.gone), "log", w.logPath())
	}
	if !up && w.o.Mode == Spawn && !w.starting.Load() && now.Sub(w.spawned) > watchEvery {
		w.spawned = now
		if err := w.spawn(); err != nil {
			w.log.Error("cannot start a guardian", "err", err)
		}
	}
}

// readLacks reads what the guardian lacks, and logs once why that cannot be read.
func (w *Watch) readLacks() {
	var err error
	w.lacks, err = ReadLacks(w.o.StateDir)
	if err == nil {
		w.unread = ""
		return
	}
	if w.unread != err.Error() {
		w.unread = err.Error()
		w.log.Error("nobody knows what the guardian's sandbox keeps from it; its log says so, and it writes the file anew when it is restarted", "log", w.logPath(), "err", err)
	}
}
