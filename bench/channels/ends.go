package channels

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/bench"
)

// end is one way in which a tenant ends.
type end struct {
	way string
	do  func(*subject) error
}

func told(stop uint32) func(*subject) error {
	return func(s *subject) error { s.Stop.Store(stop); return nil }
}

func signalled(signal syscall.Signal) func(*subject) error {
	return func(s *subject) error { return syscall.Kill(s.process.PID, signal) }
}

var everyEnd = []end{
	{"exit()", told(exit)},
	{"_exit()", told(exitAtOnce)},
	{"SIGKILL", signalled(syscall.SIGKILL)},
	{"SIGTERM", signalled(syscall.SIGTERM)},
	{"crash", told(crash)},
	{"container removed", func(s *subject) error { return s.Remove() }},
	{byDestroy, told(destroy)},
}

const (
	byDestroy = "cuCtxDestroy"
	// atOnce is how many are started at once: each way off the GPU and on it.
	atOnce = 14
	// endMost is how long a tenant may take to be gone, and its memory to be free.
	endMost = 20 * time.Second
	// rounding is how much of a tenant's memory the GPU may seem to keep: it counts in
	// pieces of 2 MiB, and the driver's own needs change.
	rounding = 16 << 20
	// endKernel is so long that each of them ends while its kernel is under way.
	endKernel = time.Second
)

// ending is an end of a tenant that is off the GPU, or on it.
type ending struct {
	end
	off bool
}

// ends lets tenants end while they are off the GPU, and as many that never were.
func (m *measurement) ends(ctx context.Context) (rows []bench.Row, err error) {
	for until := time.Now().Add(m.how.limit); len(rows)/2 < m.how.ends && time.Now().Before(until); {
		var batch []ending
		for i := range min(atOnce/2, m.how.ends-len(rows)/2) {
			first := (len(rows)/2+i)%2 == 0 // who is off comes first, then second
			e := everyEnd[i%len(everyEnd)]
			batch = append(batch, ending{e, first}, ending{e, !first})
		}
		more, err := m.endAll(ctx, batch)
		rows = append(rows, more...)
		if err != nil {
			return rows, err
		}
		m.env.Log("ends: %d of %d", len(rows)/2, m.how.ends)
	}
	return rows, nil
}

// endAll starts a container for each of these ends, and ends one after the other.
func (m *measurement) endAll(ctx context.Context, all []ending) (rows []bench.Row, err error) {
	if err := m.driver.Mark(ctx); err != nil {
		return nil, err
	}
	subjects := make([]*subject, 0, len(all))
	defer func() {
		for _, s := range subjects {
			err = errors.Join(err, s.close())
		}
	}()
	for range all {
		s, err := m.create(ctx, work{name: "ends", kernel: endKernel, mib: 256})
		if err != nil {
			return nil, err
		}
		subjects = append(subjects, s)
	}
	errs := make([]error, len(all))
	var starts sync.WaitGroup
	for i, s := range subjects {
		starts.Go(func() {
			if errs[i] = s.begin(ctx); errs[i] == nil {
				errs[i] = m.until(ctx, startLimit, func() bool { return s.Ready.Load() != 0 || s.gone() })
			}
		})
	}
	starts.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for i, s := range subjects {
		r, err := m.endOne(ctx, all[i], s)
		if err != nil {
			return rows, fmt.Errorf("%s: %w: %s", all[i].way, err, s.said())
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// endOne ends a tenant, just after it was taken off if it is to be. Times are in seconds, from its end
// on.
func (m *measurement) endOne(ctx context.Context, e ending, s *subject) (bench.Row, error) {
	var before, mine uint64
	listed := func() bool {
		var err error
		before, mine, err = m.memory(ctx, s.process.PID)
		return err == nil && mine > 0
	}
	if err := m.until(ctx, startLimit, listed); err != nil {
		return nil, fmt.Errorf("it is not listed on the GPU: %w", err)
	}
	if err := m.compute(ctx, s); err != nil {
		return nil, err
	}
	if e.off {
		if _, err := m.enforcer.Apply(ctx, s.target(), channels.Standing{Off: true, Reason: "it is to end while it is off"}); err != nil {
			return nil, err
		}
	}
	began := time.Now()
	if err := e.do(s); err != nil {
		return nil, err
	}
	r := bench.Row{"way": e.way, "stuck": m.until(ctx, endMost, s.gone) != nil, "gone_s": time.Since(began).Seconds()}
	free := func() bool {
		used, left, err := m.memory(ctx, s.process.PID)
		return err == nil && left == 0 && used+mine <= before+rounding
	}
	r["kept"] = m.until(ctx, endMost, free) != nil
	if !e.off {
		r["part"] = partOn
	}
	r["free_s"] = time.Since(began).Seconds()
	// As the guardian does, a few times a second.
	_, err := m.enforcer.Sweep(ctx, 0)
	pending, perr := m.enforcer.Pending()
	r["on_record"] = pending
	return r, errors.Join(err, perr)
}

// compute lets a program that waits launch kernels, and waits until one runs.
func (m *measurement) compute(ctx context.Context, s *subject) error {
	beat, launched := s.Beat.Load(), s.Launched.Load()
	s.Launch.Store(endless)
	return m.until(ctx, startLimit, func() bool {
		// A simulated kernel beats when it ends.
		return s.Launched.Load() != launched && (m.GPU.Simulated() || s.Beat.Load() != beat) || s.gone()
	})
}

// memory returns how much of the GPU's is used, bytes, and how much of that by a process.
func (m *measurement) memory(ctx context.Context, pid int) (all, its uint64, err error) {
	reading, err := m.reader.Read(ctx)
	if err != nil {
		return 0, 0, err
	}
	for _, g := range reading.GPUs {
		if g.ProcessesErr != nil {
			return 0, 0, g.ProcessesErr
		}
		all += g.MemoryUsed
		for _, p := range g.Processes {
			if p.PID == pid {
				its += p.MemoryUsed
			}
		}
	}
	return all, its, nil
}
