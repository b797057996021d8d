package rm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// SwitchAsOne is Switch for groups of several processes, on several GPUs, whose work waits for each
// other. It opens and checks everything first, then makes the calls of all GPUs in parallel. skew
// is the time from the end of the first GPU's calls to the end of the last GPU's.
//
// Off is all or none for all of them: if one GPU's call is refused, or the caller's context ends
// before, all groups are switched on again, even after SwitchAsOne has returned.
func (m *Manager) SwitchAsOne(ctx context.Context, groups []Group, on bool) (skew time.Duration, err error) {
	if len(groups) == 0 {
		return 0, nil
	}
	var pids []int
	for _, g := range groups {
		if g.Subdevice == 0 {
			return 0, fmt.Errorf("switch %v: %w: it has no subdevice", g, ErrUnsupported)
		}
		pids = append(pids, g.PID)
	}
	call, verb := "channels off as one", "switch off"
	if on {
		call, verb = "channels on as one", "switch on"
	}
	var took time.Duration // belongs to work, which may outlive this function
	err = m.doFor(ctx, call, pids, func(ctx context.Context, abandoned func() bool) error {
		var err error
		took, err = m.switchAsOne(ctx, groups, on, abandoned)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("%s %d channel groups as one: %w", verb, len(groups), err)
	}
	return took, nil
}

func (m *Manager) switchAsOne(ctx context.Context, groups []Group, on bool, abandoned func() bool) (time.Duration, error) {
	r, err := m.prepare(groups, on)
	defer r.close()
	if err != nil && !on {
		return 0, err // nothing was switched
	}
	skew, failed := r.make(ctx, on)
	if err = errors.Join(err, failed); on || err == nil && !abandoned() {
		return skew, err
	}
	if _, undo := r.make(context.WithoutCancel(ctx), true); undo == nil {
		return 0, err
	}
	for _, of := range byFile(groups) { // some may be gone: try each by itself, without those
		if undo := m.switchOn(of[0].Process, of); undo != nil && !errors.Is(undo, ErrGone) {
			err = errors.Join(err, fmt.Errorf("and they could not all be switched on again: %w", undo))
		}
	}
	return 0, err
}

// joint is the calls that switch groups as one: per GPU, one after another. Their files are open
// until it is closed.
type joint struct {
	gpus  map[string][]opened
	files []*file
}

// opened is one call, with the file that it uses.
type opened struct {
	*file
	batch
}

// prepare opens and checks everything, the descriptors in parallel. To switch on, it leaves out
// what cannot be opened, and the error says so.
func (m *Manager) prepare(groups []Group, on bool) (*joint, error) {
	r := &joint{gpus: map[string][]opened{}}
	var (
		mu   sync.Mutex
		wait sync.WaitGroup
		errs []error
	)
	for _, of := range byFile(groups) {
		wait.Go(func() {
			var f *file
			var calls map[string][]batch
			err := recovered(func() (err error) {
				if f, err = m.duplicate(of[0].Process, of[0].FD); err == nil {
					calls, err = f.calls(of, on)
				}
				return err
			})
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
			if f != nil {
				r.files = append(r.files, f)
			}
			for gpu, all := range calls {
				for _, b := range all { // one file per call: its buffers serve one call at a time
					r.gpus[gpu] = append(r.gpus[gpu], opened{&file{kernel: f.kernel, fd: f.fd}, b})
				}
			}
		})
	}
	wait.Wait()
	return r, errors.Join(errs...)
}

// calls returns the calls that switch groups over one descriptor, by GPU.
func (f *file) calls(groups []Group, on bool) (map[string][]batch, error) {
	if !on {
		if err := f.checkWhole(groups); err != nil {
			return nil, err
		}
	}
	by, all, errs := map[string][]Group{}, map[string][]batch{}, []error(nil)
	for _, g := range groups {
		by[g.GPU] = append(by[g.GPU], g)
	}
	for gpu, of := range by {
		all[gpu] = batches(of, func(g Group) []uint32 {
			if !on {
				return g.Channels
			}
			here, err := f.checkChannels(g)
			errs = append(errs, err)
			return here
		})
	}
	return all, errors.Join(errs...)
}

// make makes the calls: those of each GPU on a worker of its own, all starting together. Off stops
// at the first failure; on tries all.
func (r *joint) make(ctx context.Context, on bool) (skew time.Duration, err error) {
	var (
		ready, done sync.WaitGroup
		start       = make(chan struct{})
		failed      atomic.Bool
		mu          sync.Mutex
		ends        []time.Time
		errs        []error
	)
	for _, calls := range r.gpus {
		ready.Add(1)
		done.Go(func() {
			ready.Done()
			<-start
			var own []error
			for _, c := range calls {
				if !on && (failed.Load() || ctx.Err() != nil) {
					own = append(own, ctx.Err())
					break
				}
				if err := recovered(func() error { return c.switchBatch(c.batch, on) }); err != nil {
					failed.Store(true)
					own = append(own, err)
				}
			}
			end := time.Now()
			mu.Lock()
			defer mu.Unlock()
			ends, errs = append(ends, end), append(errs, own...)
		})
	}
	ready.Wait()
	close(start)
	done.Wait()
	if len(ends) > 0 {
		skew = slices.MaxFunc(ends, time.Time.Compare).Sub(slices.MinFunc(ends, time.Time.Compare))
	}
	return skew, errors.Join(errs...)
}

func (r *joint) close() {
	for _, f := range r.files {
		f.close()
	}
}

// byFile splits groups by process and descriptor.
func byFile(groups []Group) (split [][]Group) {
	type of struct {
		Process
		fd int
	}
	by := map[of][]Group{}
	for _, g := range groups {
		by[of{g.Process, g.FD}] = append(by[of{g.Process, g.FD}], g)
	}
	for _, all := range by {
		split = append(split, all)
	}
	return split
}
