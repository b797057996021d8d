package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/record"
)

// rounds bounds how often we look for processes that came while others were being suspended.
const rounds = 5

// Suspend implements enforce.Swapper.
func (s *Swapper) Suspend(ctx context.Context, id, container, reason string) (enforce.SwapResult, error) {
	var result enforce.SwapResult
	end, err := s.begin(id)
	if err != nil {
		return result, err
	}
	defer end()
	switch rec, ok, err := s.records.get(id); {
	case err != nil:
		return result, err
	case ok && rec.Stage == enforce.Suspended:
		return enforce.SwapResult{Bytes: rec.Bytes, Processes: len(rec.Processes)}, nil
	case ok:
		return result, fmt.Errorf("container %s is %s: %w", rec.Container, rec.Stage, enforce.ErrStuck)
	}
	processes, err := s.examine(ctx, id)
	if err != nil {
		return result, err
	}
	defer s.forgetPromise(id)
	if err := s.promise(id, processes); err != nil {
		return result, err
	}
	rec := Record{Processes: processes, Notice: s.records.notice(id), Swapped: enforce.Swapped{
		ContainerID: id, Container: container, Reason: reason, Bytes: sum(processes),
		Since: s.o.Now(), Stage: enforce.Suspending,
	}}
	if err := s.records.put(rec); err != nil {
		return result, errors.Join(err, s.records.remove(rec)) // nothing was stopped
	}
	err = s.takeOff(ctx, &rec, &result)
	if err == nil {
		rec.Stage = enforce.Suspended
		err = s.records.put(rec)
	}
	result.Bytes, result.Processes = rec.Bytes, len(rec.Processes)
	if err == nil {
		return result, nil
	}
	if errors.Is(err, ErrNotSupported) {
		err = fmt.Errorf("%w: %w (managed memory, IPC handles and MPS are what drivers do not support)", enforce.ErrCannotSwap, err)
		s.refuse(id, rec.Processes, err)
	}
	return result, s.undo(ctx, &rec, err)
}

// undo reverts a suspend and returns why. The engine or the GPUs may not answer for a moment, and the
// container would stand meanwhile: it tries again, within its limit.
func (s *Swapper) undo(ctx context.Context, rec *Record, cause error) error {
	// Not the caller's context: it may be what ended, and this must be tried.
	ctx = context.WithoutCancel(ctx)
	rec.Doubtful = rec.Doubtful || errors.Is(cause, ErrHelper)
	var err error
	for left, wait := s.undoLimit(*rec), 50*time.Millisecond; left > 0; wait = min(2*wait, time.Second) {
		var took time.Duration
		took, err = s.inTurn(ctx, left, rec, nil, new(enforce.SwapResult))
		if !errors.Is(err, enforce.ErrUnavailable) {
			break
		}
		_ = enforce.Sleep(ctx, wait) // this context does not end
		left -= took + wait
	}
	if err == nil {
		if err = s.records.remove(*rec); err == nil {
			return fmt.Errorf("%w: %w", enforce.ErrUndone, cause)
		}
	}
	rec.Stage, rec.Error = enforce.Stuck, cause.Error()
	return fmt.Errorf("container %s is %w: %w; undoing it failed: %w", rec.Container, enforce.ErrStuck, cause,
		errors.Join(err, s.records.put(*rec)))
}

func (s *Swapper) undoLimit(rec Record) time.Duration {
	limit := s.o.StepTimeout
	for _, p := range rec.Processes {
		limit += 2 * s.limit(p)
	}
	return limit
}

// takeOff locks, checkpoints and freezes until no process of the container uses a GPU.
func (s *Swapper) takeOff(ctx context.Context, rec *Record, result *enforce.SwapResult) error {
	var done []Process
	for range rounds {
		began := s.o.Now()
		if err := s.lockAll(ctx, rec, done); err != nil {
			return err
		}
		result.LockSeconds += s.o.Now().Sub(began).Seconds()
		began = s.o.Now()
		for _, p := range rec.Processes[len(done):] {
			if err := s.checkpoint(ctx, p); err != nil {
				return err
			}
			s.copied(rec.ContainerID, p)
		}
		done = rec.Processes
		result.CheckpointSeconds += s.o.Now().Sub(began).Seconds()
		began = s.o.Now()
		left, err := s.freeze(ctx, rec)
		result.PauseSeconds += s.o.Now().Sub(began).Seconds()
		if err != nil || !left {
			return err
		}
	}
	return fmt.Errorf("new processes of it keep on using the GPU, after %d rounds", rounds)
}

// lockAll locks the processes on record that are not locked yet. It puts processes that come
// meanwhile on record and locks them, too.
func (s *Swapper) lockAll(ctx context.Context, rec *Record, done []Process) error {
	deadline := s.o.Now().Add(s.o.LockTimeout)
	locked := len(done)
	for range rounds {
		for _, p := range rec.Processes[locked:] {
			left := max(deadline.Sub(s.o.Now()), time.Millisecond)
			if err := s.lock(ctx, p, left); err != nil {
				return err
			}
		}
		locked = len(rec.Processes)
		gpus, err := s.gpus(ctx)
		if err != nil {
			return fmt.Errorf("read the GPUs: %w", err)
		}
		for i, p := range rec.Processes { // it may have allocated until it was locked
			if held := bytesOf(gpus, p.PID); held != nil {
				rec.Processes[i].Bytes = held
			}
		}
		more, err := s.find(ctx, rec.ContainerID, gpus, rec.Processes)
		if err != nil {
			return err
		}
		rec.Processes = append(rec.Processes, more...)
		was := rec.Bytes
		rec.Bytes = sum(rec.Processes)
		if len(more) > 0 || !maps.Equal(was, rec.Bytes) {
			if err := s.records.put(*rec); err != nil {
				return err
			}
		}
		if len(more) == 0 {
			return s.promise(rec.ContainerID, rec.Processes[len(done):])
		}
	}
	return fmt.Errorf("new processes of it keep on using CUDA, after %d rounds", rounds)
}

func (s *Swapper) lock(ctx context.Context, p Process, limit time.Duration) error {
	// The driver's own limit does not hold where the process cannot run.
	ctx, cancel := context.WithTimeout(ctx, limit+s.o.AnswerTimeout)
	defer cancel()
	return s.unlessGone(p, s.o.Driver.Lock(ctx, p.PID, limit))
}

func (s *Swapper) checkpoint(ctx context.Context, p Process) error {
	ctx, cancel := context.WithTimeout(ctx, s.limit(p))
	defer cancel()
	return s.unlessGone(p, s.o.Driver.Checkpoint(ctx, p.PID))
}

// unlessGone forgives a step's error if the process has ended meanwhile.
func (s *Swapper) unlessGone(p Process, err error) error {
	if err != nil && !s.alive(p) {
		return nil
	}
	return err
}

func (s *Swapper) pause(ctx context.Context, rec Record) error {
	now := s.o.Now()
	err := s.o.Pauser.Pause(ctx, record.Hold{ContainerID: rec.ContainerID, Container: rec.Container, Cause: "swap",
		Reason: rec.Reason, Since: now, Expires: now, Until: now})
	if err != nil {
		return fmt.Errorf("pause: %w", err)
	}
	return nil
}

// freeze pauses the container and reports whether one of its processes is on a GPU. If so the
// container runs again, so that this process can be suspended, too.
func (s *Swapper) freeze(ctx context.Context, rec *Record) (left bool, err error) {
	if err := s.pause(ctx, *rec); err != nil {
		return false, err
	}
	gpus, err := s.gpus(ctx)
	if err != nil {
		return false, fmt.Errorf("read the GPUs: %w", err)
	}
	pids, err := s.o.Processes.Of(rec.ContainerID)
	if err != nil {
		return false, err
	}
	for _, pid := range pids {
		if !isKnown(rec.Processes, pid) && bytesOf(gpus, pid) != nil {
			left = true
		}
	}
	if !left {
		return false, nil
	}
	if err := s.o.Pauser.Unpause(ctx, rec.ContainerID); err != nil {
		return false, fmt.Errorf("unpause: %w", err)
	}
	more, err := s.find(ctx, rec.ContainerID, gpus, rec.Processes)
	if err != nil {
		return false, err
	}
	rec.Processes = append(rec.Processes, more...)
	return true, s.records.put(*rec)
}
