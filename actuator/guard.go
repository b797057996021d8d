package actuator

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

// watch sees to it that a guardian watches us.
type watch struct {
	mode    GuardianMode
	command []string
	dir     string
	off     bool // nothing is ever held
	log     *slog.Logger

	up       atomic.Bool
	next     time.Time      // of the next look
	lacks    []sandbox.Lack // the guardian's
	spawned  time.Time
	starting atomic.Bool
}

const (
	watchEvery = time.Second
	spawnWait  = 10 * time.Second
)

func newWatch(o Options, log *slog.Logger) *watch {
	return &watch{mode: o.Guardian, command: o.GuardianCommand, dir: o.StateDir, off: o.DryRun, log: log}
}

// mayHold reports whether containers may be held now.
func (w *watch) mayHold() bool { return w.off || w.mode != Require || w.up.Load() }

// start is called once, with the actuator's lock held. Only then may a guardian
// be started: one that ends by itself ends while the lock is free.
func (w *watch) start(ctx context.Context) error {
	if w.off {
		return nil
	}
	w.up.Store(journal.Taken(journal.GuardianLock(w.dir)))
	if w.up.Load() {
		return nil
	}
	switch w.mode {
	case Require:
		return fmt.Errorf("no guardian watches %s; start `laxity-actuator guardian --state-dir=%s` first, or use --guardian=spawn", w.dir, w.dir)
	case Warn:
		w.log.Warn("no guardian watches: if this process is killed, containers that it paused stay paused", "state_dir", w.dir)
		return nil
	}
	if err := w.spawn(); err != nil {
		return err
	}
	deadline := time.Now().Add(spawnWait)
	for !journal.Taken(journal.GuardianLock(w.dir)) {
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

func (w *watch) logPath() string { return filepath.Join(w.dir, "guardian.log") }

// spawn starts a guardian in a session of its own, so that neither Ctrl-C nor
// the end of our terminal takes it along.
func (w *watch) spawn() error {
	out, err := os.OpenFile(w.logPath(), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("guardian's log: %w", err)
	}
	defer out.Close()
	cmd := exec.Command(w.command[0], w.command[1:]...) //nolint:noctx // it must outlive us
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the guardian: %w", err)
	}
	w.log.Info("guardian started", "pid", cmd.Process.Pid, "log", w.logPath())
	w.starting.Store(true)
	go func() {
		err := cmd.Wait() // so that it is no zombie
		w.starting.Store(false)
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			w.log.Warn("the guardian ended", "err", err, "log", w.logPath())
		}
	}()
	return nil
}

// look is called by the loop. It starts a guardian again if one is to be had.
func (w *watch) look(now time.Time) {
	if w.off || now.Before(w.next) {
		return
	}
	w.next = now.Add(watchEvery)
	was := w.up.Load()
	up := journal.Taken(journal.GuardianLock(w.dir))
	w.up.Store(up)
	w.lacks = nil
	if up {
		w.lacks = readLacks(w.dir)
	}
	switch {
	case up && !was:
		w.log.Info("a guardian watches")
	case !up && was:
		w.log.Warn("the guardian is gone: what is paused now stays paused if this process is killed", "mode", string(w.mode))
	}
	if !up && w.mode == Spawn && !w.starting.Load() && now.Sub(w.spawned) > watchEvery {
		w.spawned = now
		if err := w.spawn(); err != nil {
			w.log.Error("cannot start a guardian", "err", err)
		}
	}
}
