package rm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// Slice reads the time slice of a group: the last one set, by its process or by us.
func (m *Manager) Slice(ctx context.Context, g Group) (time.Duration, error) {
	var slice timeslice
	err := m.do(ctx, "slice", g.PID, func(context.Context, func() bool) error {
		return m.with(g.Process, g.FD, func(f *file) error {
			if err := f.check(g); err != nil {
				return err
			}
			return f.control(g.Client, g.Handle, cmdGetSlice, &slice)
		})
	})
	if err != nil {
		return 0, fmt.Errorf("read the slice of %v: %w", g, err)
	}
	return time.Duration(min(slice.Micros, math.MaxInt64/1000)) * time.Microsecond, nil
}

// SetSlice sets the time slice of a group, in microseconds. It takes effect at once, even in a
// running slice. libcuda sets its own slice just after it has scheduled the group. After an error
// by a deadline the slice may have been set: read it back.
func (m *Manager) SetSlice(ctx context.Context, g Group, d time.Duration) error {
	if d < MinSlice || d > MaxSlice {
		return fmt.Errorf("a slice of %v for %v: it must be from %v to %v", d, g, MinSlice, MaxSlice)
	}
	err := m.do(ctx, "set slice", g.PID, func(context.Context, func() bool) error {
		return m.with(g.Process, g.FD, func(f *file) error {
			if err := f.check(g); err != nil {
				return err
			}
			return f.control(g.Client, g.Handle, cmdSetSlice, &timeslice{uint64(d.Microseconds())})
		})
	})
	if err != nil {
		return fmt.Errorf("set the slice of %v: %w", g, err)
	}
	return nil
}

// check returns nil if g's handles still mean what g says, else an error that is ErrChanged.
func (f *file) check(g Group) error {
	if err := f.expect(g.Client, g.Handle, indexClass, g.Class, "class"); err != nil {
		return fmt.Errorf("%v: %w", g, err)
	}
	return nil
}

// checkChannels also checks that g's channels are channels, and returns those that still exist. The
// error names each handle that is another object by now; those are not among the returned ones.
func (f *file) checkChannels(g Group) (here []uint32, err error) {
	if err := f.check(g); err != nil {
		return nil, err
	}
	var errs []error
	for at, channel := range g.Channels {
		left := g.Channels[at:]
		f.ahead(2*len(left), func(i int) question {
			return question{g.Client, left[i/2], []uint32{indexClass, indexParent}[i%2]}
		})
		class, err := f.info(g.Client, channel, indexClass)
		status := Status(0)
		switch {
		case errors.As(err, &status):
			continue
		case err != nil:
			errs = append(errs, err)
			continue
		case !isChannel(class):
			errs = append(errs, fmt.Errorf("%v: %w: %#x is of class %#x, no channel", g, ErrChanged, channel, class))
			continue
		}
		if err := f.expect(g.Client, channel, indexParent, g.Handle, "group"); err != nil {
			errs = append(errs, fmt.Errorf("%v: channel %#x: %w", g, channel, err))
			continue
		}
		here = append(here, channel)
	}
	return here, errors.Join(errs...)
}

// checkWhole checks that groups are what they say, and have lost no channel.
func (f *file) checkWhole(groups []Group) error {
	for _, g := range groups {
		if here, err := f.checkChannels(g); err != nil {
			return err
		} else if len(here) < len(g.Channels) {
			return fmt.Errorf("%v: %w: %d of its %d channels are gone", g, ErrChanged, len(g.Channels)-len(here), len(g.Channels))
		}
	}
	return nil
}

func (f *file) expect(client, object, index, want uint32, what string) error {
	got, err := f.info(client, object, index)
	status := Status(0)
	switch {
	case errors.As(err, &status):
		return fmt.Errorf("%w: %w", ErrChanged, err)
	case err != nil:
		return err
	case got != want:
		return fmt.Errorf("%w: its %s is %#x, not %#x", ErrChanged, what, got, want)
	}
	return nil
}

// Switch takes the channels of groups off their GPUs, running kernels too, or switches them on
// again. Groups may be of several clients and GPUs, but of one process.
//
// Off is all or none. If a call is refused, or the caller's context ends before, all of the groups
// are switched on again, even after Switch has returned, and even those that were off before. All
// groups are checked first: if one is not what it says, or has lost a channel, that is ErrChanged,
// and nothing was switched. Find the groups again.
//
// On tries every channel that still exists, whatever failed before it. It may be repeated.
func (m *Manager) Switch(ctx context.Context, groups []Group, on bool) error {
	if len(groups) == 0 {
		return nil
	}
	p := groups[0].Process
	for _, g := range groups {
		if g.Process != p {
			return fmt.Errorf("switch: %v and %v are of different processes", groups[0], g)
		}
		if g.Subdevice == 0 {
			return fmt.Errorf("switch %v: %w: it has no subdevice", g, ErrUnsupported)
		}
	}
	call, verb := "channels off", "switch off"
	if on {
		call, verb = "channels on", "switch on"
	}
	err := m.do(ctx, call, p.PID, func(ctx context.Context, abandoned func() bool) error {
		if on {
			return m.switchOn(p, groups)
		}
		return m.switchOff(ctx, p, groups, abandoned)
	})
	if err != nil {
		return fmt.Errorf("%s %d channel groups of %v: %w", verb, len(groups), p, err)
	}
	return nil
}

func (m *Manager) switchOn(p Process, groups []Group) error {
	var errs []error
	for _, of := range byDescriptor(groups) {
		errs = append(errs, m.with(p, of[0].FD, func(f *file) error {
			var errs []error
			for _, b := range batches(of, func(g Group) []uint32 {
				here, err := f.checkChannels(g)
				errs = append(errs, err)
				return here
			}) {
				errs = append(errs, f.switchBatch(b, true))
			}
			return errors.Join(errs...)
		}))
	}
	return errors.Join(errs...)
}

func (m *Manager) switchOff(ctx context.Context, p Process, groups []Group, abandoned func() bool) (err error) {
	for _, of := range byDescriptor(groups) { // all are checked before one is switched
		if err := m.with(p, of[0].FD, func(f *file) error { return f.checkWhole(of) }); err != nil {
			return err
		}
	}
	for _, of := range byDescriptor(groups) {
		if err = m.with(p, of[0].FD, func(f *file) error {
			for _, b := range batches(of, func(g Group) []uint32 { return g.Channels }) {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if err := f.switchBatch(b, false); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			break
		}
	}
	if err == nil && !abandoned() {
		return nil
	}
	if undo := m.switchOn(p, groups); undo != nil && !errors.Is(undo, ErrGone) {
		err = errors.Join(err, fmt.Errorf("and they could not all be switched on again: %w", undo))
	}
	return err
}

// byDescriptor splits groups by descriptor, in order.
func byDescriptor(groups []Group) (split [][]Group) {
	sorted := slices.SortedStableFunc(slices.Values(groups), func(a, b Group) int { return cmp.Compare(a.FD, b.FD) })
	for i, g := range sorted {
		if i == 0 || g.FD != sorted[i-1].FD {
			split = append(split, nil)
		}
		split[len(split)-1] = append(split[len(split)-1], g)
	}
	return split
}

// batch is what one call switches: up to maxDisable channels of one client on one GPU.
type batch struct {
	client, subdevice uint32
	channels          []uint32
}

func batches(groups []Group, channels func(Group) []uint32) (out []batch) {
	by := map[[2]uint32][]uint32{}
	for _, g := range groups {
		key := [2]uint32{g.Client, g.Subdevice}
		by[key] = append(by[key], channels(g)...)
	}
	for key, all := range by {
		slices.Sort(all)
		for part := range slices.Chunk(slices.Compact(all), maxDisable) {
			out = append(out, batch{key[0], key[1], part})
		}
	}
	slices.SortFunc(out, func(a, b batch) int {
		return cmp.Or(cmp.Compare(a.client, b.client), cmp.Compare(a.channels[0], b.channels[0]))
	})
	return out
}

func (f *file) switchBatch(b batch, on bool) error {
	d := disable{Count: uint32(len(b.channels))}
	if !on {
		d.Disable = 1
	}
	for i, channel := range b.channels {
		d.Clients[i], d.Channels[i] = b.client, channel
	}
	return f.control(b.client, b.subdevice, cmdDisable, &d)
}
