package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/laxity/laxity/actuator/enforce"
)

// Resume implements enforce.Swapper.
func (s *Swapper) Resume(ctx context.Context, id string, room func(need map[string]uint64) error) (enforce.SwapResult, error) {
	var result enforce.SwapResult
	end, err := s.begin(id)
	if err != nil {
		return result, err
	}
	defer end()
	rec, ok, err := s.records.get(id)
	switch {
	case err != nil:
		return result, err
	case !ok:
		return result, fmt.Errorf("container %.12s is not on record as swapped: %w", id, enforce.ErrForeign)
	}
	// Once begun, a resume finishes: the caller's context does not end it.
	if err := ctx.Err(); err != nil {
		return result, err
	}
	ctx = context.WithoutCancel(ctx)
	if rec.Stage == enforce.Suspending {
		// A former actuator may have died with a lock or a pause under way.
		rec.Doubtful = true
		if err := enforce.Sleep(ctx, s.o.Settle); err != nil {
			return result, err
		}
	}
	defer s.forgetPromise(id)
	_, err = s.inTurn(ctx, s.undoLimit(rec), &rec, room, &result)
	switch {
	case err == nil:
		return result, s.records.remove(rec)
	case errors.Is(err, enforce.ErrNoRoom), errors.Is(err, enforce.ErrUnavailable), errors.Is(err, enforce.ErrForeign):
		return result, err // as it was
	}
	rec.Stage, rec.Error = enforce.Stuck, err.Error()
	return result, errors.Join(fmt.Errorf("container %s is %w: %w", rec.Container, enforce.ErrStuck, err), s.records.put(rec))
}

// inTurn is bringBack, once no other container is being restored. That may take as long as a limit, so
// this one's begins then. took is without the wait.
func (s *Swapper) inTurn(ctx context.Context, limit time.Duration, rec *Record, room func(map[string]uint64) error, result *enforce.SwapResult) (took time.Duration, err error) {
	s.restoring.Lock()
	defer s.restoring.Unlock()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := s.o.Now()
	err = s.bringBack(ctx, rec, room, result)
	return s.o.Now().Sub(began), err
}

// bringBack makes the container run, from any state of its processes. It returns nil if the
// container runs or has ended. It touches only what is on record. The caller holds restoring.
func (s *Swapper) bringBack(ctx context.Context, rec *Record, room func(map[string]uint64) error, result *enforce.SwapResult) error {
	status, err := s.o.Pauser.Status(ctx, rec.ContainerID)
	switch {
	case errors.Is(err, enforce.ErrGone):
		return s.forgetPause(ctx, rec.ContainerID)
	case err != nil:
		return err
	}
	if err := s.room(ctx, *rec, room); err != nil {
		return err
	}
	if rec.Stage == enforce.Suspended {
		rec.Stage = enforce.Resuming
		// After our death here it is on record as suspended, and the same steps bring it back: we
		// ask the driver what state each process is in.
		if err := s.records.put(*rec); err != nil {
			s.o.Logger.Error("cannot record that a container is being swapped in; it is, all the same", "container", rec.Container, "err", err)
		}
	}
	began := s.o.Now()
	err = s.o.Pauser.Unpause(ctx, rec.ContainerID)
	switch {
	case errors.Is(err, enforce.ErrForeign) && status.Paused:
		return fmt.Errorf("container %s was paused by somebody else: %w", rec.Container, enforce.ErrForeign)
	case err != nil && !errors.Is(err, enforce.ErrForeign):
		return fmt.Errorf("unpause: %w", err)
	}
	result.UnpauseSeconds = s.o.Now().Sub(began).Seconds()
	if len(rec.Processes) == 0 { // the record could not be read
		if err := s.adopt(ctx, rec); err != nil {
			return err
		}
	}
	return s.restoreAll(ctx, rec, result)
}

// forgetPause removes a container that no longer exists from the pauser's record.
func (s *Swapper) forgetPause(ctx context.Context, id string) error {
	if err := s.o.Pauser.Unpause(ctx, id); err != nil && !errors.Is(err, enforce.ErrForeign) {
		return err
	}
	return nil
}

// room checks that the GPUs have memory for what was swapped out.
func (s *Swapper) room(ctx context.Context, rec Record, ask func(map[string]uint64) error) error {
	gpus, err := s.gpus(ctx)
	if err != nil {
		return fmt.Errorf("%w: the GPUs cannot be read: %w", enforce.ErrUnavailable, err)
	}
	byUUID := map[string]GPU{}
	for _, g := range gpus {
		byUUID[g.UUID] = g
	}
	need := map[string]uint64{}
	for _, p := range rec.Processes {
		for uuid, b := range p.Bytes {
			if _, there := byUUID[uuid].Processes[p.PID]; !there && s.alive(p) {
				need[uuid] += b
			}
		}
	}
	for uuid, b := range need {
		g, ok := byUUID[uuid]
		if free := g.Total - min(g.Used, g.Total); !ok || free < b+s.o.GPUReserve {
			return fmt.Errorf("%w: %s needs %d MiB and a reserve of %d MiB on %s, where %d MiB are free",
				enforce.ErrNoRoom, rec.Container, b>>20, s.o.GPUReserve>>20, uuid, free>>20)
		}
	}
	if ask == nil || len(need) == 0 {
		return nil
	}
	if err := ask(need); err != nil {
		return fmt.Errorf("%w: %w", enforce.ErrNoRoom, err)
	}
	return nil
}

// adopt adds all processes of a container that use CUDA to a record that could not be read. One that
// it cannot ask about now may be off its GPU, so then nothing is brought back yet: a record of the others
// alone would be removed, or written again, without it.
func (s *Swapper) adopt(ctx context.Context, rec *Record) error {
	pids, err := s.o.Processes.Of(rec.ContainerID)
	if err != nil {
		return fmt.Errorf("%w: the processes cannot be read: %w", enforce.ErrUnavailable, err)
	}
	var found []Process
	for _, pid := range pids {
		stat, err := s.o.Processes.Stat(pid)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%w: process %d cannot be read: %w", enforce.ErrUnavailable, pid, err)
		}
		p := Process{PID: pid, Start: stat.Start}
		_, err = s.state(ctx, pid)
		switch {
		case err == nil:
			found = append(found, p)
		case errors.Is(err, ErrNoCUDA), !s.alive(p):
		default:
			return fmt.Errorf("%w: the state of process %d: %w", enforce.ErrUnavailable, pid, err)
		}
	}
	sortProcesses(found)
	rec.Processes = found
	return nil
}

// errLost means that a process cannot be brought back.
var errLost = errors.New("cannot be restored any more")

// restoreAll restores and unlocks the processes of a container that is not frozen. If one cannot be
// restored, restoreAll takes all of them off the GPU again and freezes the container: so its memory
// is kept.
func (s *Swapper) restoreAll(ctx context.Context, rec *Record, result *enforce.SwapResult) error {
	began := s.o.Now()
	var restored []Process
	for _, p := range rec.Processes {
		did, err := s.reach(ctx, p, Locked)
		if did {
			s.keep(rec.ContainerID, p)
			restored = append(restored, p)
		}
		if err != nil {
			return s.giveUp(ctx, rec, restored, err)
		}
	}
	result.Bytes, result.Processes = sum(restored), len(restored) // not of those that have ended
	result.RestoreSeconds = s.o.Now().Sub(began).Seconds()
	began = s.o.Now()
	if err := s.unlockAll(ctx, *rec); err != nil {
		return err
	}
	result.UnlockSeconds = s.o.Now().Sub(began).Seconds()
	if !rec.Doubtful {
		return nil
	}
	if err := enforce.Sleep(ctx, s.o.Settle); err != nil {
		return err
	}
	return s.unlockAll(ctx, *rec)
}

func (s *Swapper) unlockAll(ctx context.Context, rec Record) error {
	for _, p := range rec.Processes {
		if _, err := s.reach(ctx, p, Running); err != nil {
			return err
		}
	}
	return nil
}

// attempts bounds how often we try a step that failed without changing anything.
const attempts = 4

// reach brings a process to a state: checkpointed → locked → running. It reports whether it restored
// the process. A process that has ended counts as there.
func (s *Swapper) reach(ctx context.Context, p Process, want State) (restored bool, err error) {
	wait := 20 * time.Millisecond
	for failures := 0; ; {
		if !s.alive(p) {
			return restored, nil
		}
		state, serr := s.state(ctx, p.PID)
		switch {
		case errors.Is(serr, ErrNoCUDA) && !s.alive(p):
			return restored, nil
		case serr != nil:
			err = serr
		case state == Running, state == want:
			return restored, nil
		case state == Failed:
			return restored, fmt.Errorf("process %d %w: %w", p.PID, errLost, err)
		case state == Checkpointed:
			if err = s.step(ctx, p, s.o.Driver.Restore); err == nil {
				restored = true
				continue
			}
		case state == Locked:
			if err = s.step(ctx, p, s.o.Driver.Unlock); err == nil {
				continue
			}
		case state == Moving:
			failures-- // until its end, or that of ctx
		}
		var code Code
		if failures++; failures >= attempts || errors.As(err, &code) && code == OutOfMemory {
			return restored, fmt.Errorf("process %d is %s: %w", p.PID, state, err)
		}
		if serr := enforce.Sleep(ctx, wait); serr != nil {
			return restored, fmt.Errorf("process %d is %s: %w", p.PID, state, errors.Join(err, serr))
		}
		wait = min(2*wait, time.Second)
	}
}

func (s *Swapper) step(ctx context.Context, p Process, f func(context.Context, int) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.limit(p))
	defer cancel()
	return f(ctx, p.PID)
}

// giveUp takes the restored processes off the GPU again, because another one could not be restored,
// and freezes the container.
func (s *Swapper) giveUp(ctx context.Context, rec *Record, restored []Process, cause error) error {
	if errors.Is(cause, ErrHelper) {
		return cause // a restore may still be going on; it needs the process's threads
	}
	for _, p := range restored {
		if state, err := s.state(ctx, p.PID); err == nil && state == Locked {
			if err := s.checkpoint(ctx, p); err != nil {
				return fmt.Errorf("%w; and taking process %d off again failed: %w", cause, p.PID, err)
			}
			s.copied(rec.ContainerID, p)
		}
	}
	if err := s.pause(ctx, *rec); err != nil {
		return fmt.Errorf("%w; and freezing it again failed: %w", cause, err)
	}
	var code Code
	if errors.As(cause, &code) && code == OutOfMemory && !errors.Is(cause, errLost) {
		rec.Stage = enforce.Suspended
		return errors.Join(fmt.Errorf("%w: %w", enforce.ErrNoRoom, cause), s.records.put(*rec))
	}
	return cause
}
