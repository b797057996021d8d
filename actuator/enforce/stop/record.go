package stop

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/internal/cudabpf"
	"github.com/laxity/laxity/internal/cudaprobe"
)

// Record has the holds of a memory guard and outlives the guard. It is safe for concurrent use, also
// by several processes.
type Record struct {
	holds, leases, released, until *ebpf.Map
}

// OpenRecord opens the record of this name. The error wraps fs.ErrNotExist when there is none.
func OpenRecord(name string) (r *Record, err error) {
	r = &Record{}
	for pin, to := range map[string]**ebpf.Map{
		cudabpf.MemoryMapHolds: &r.holds, cudabpf.MemoryMapLeases: &r.leases,
		cudabpf.MemoryMapReleased: &r.released, cudabpf.MemoryMapUntil: &r.until,
	} {
		if *to, err = ebpf.LoadPinnedMap(filepath.Join(cudaprobe.PinFolder(name), pin), nil); err != nil {
			return nil, errors.Join(fmt.Errorf("record of who is stopped: %w", err), r.Close())
		}
	}
	return r, nil
}

// Close closes the record and keeps it.
func (r *Record) Close() error {
	return errors.Join(r.holds.Close(), r.leases.Close(), r.released.Close(), r.until.Close())
}

// Remove removes the record of this name. It must be empty.
func Remove(name string) error { return cudaprobe.RemoveRecord(cudaprobe.PinFolder(name)) }

// RemoveEmpty removes the record of this name unless it lists a hold, or cannot be read. Then it
// stays and the error says why: without a record nobody would continue that process.
func RemoveEmpty(name string) error {
	r, err := OpenRecord(name)
	if errors.Is(err, fs.ErrNotExist) {
		return Remove(name) // what is left of one that was never complete
	}
	if err != nil {
		return err
	}
	holds, err := r.List()
	if err = errors.Join(err, r.Close()); err != nil {
		return err
	}
	if len(holds) > 0 {
		return fmt.Errorf("record of who is stopped: it stays for the guardian: it lists %d holds, the first of process %d", len(holds), holds[0].PID)
	}
	return Remove(name)
}

// Now is the clock of the record (CLOCK_MONOTONIC).
func Now() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // every Linux has it
	return time.Duration(now.Nano())
}

// Open lets every call pass from now on, until the guard is renewed.
func (r *Record) Open() error { return r.until.Put(uint32(0), uint64(0)) }

// Expired reports whether the guard is open because nobody has renewed it.
func (r *Record) Expired(now time.Duration) (bool, error) {
	var until uint64
	if err := r.until.Lookup(uint32(0), &until); err != nil {
		return false, fmt.Errorf("record of who is stopped: %w", err)
	}
	return until <= uint64(now), nil
}

// List returns the holds on record, the oldest first.
func (r *Record) List() ([]Hold, error) {
	var (
		all   []Hold
		key   cudabpf.MemoryHoldKey
		value cudabpf.MemoryHold
		seen  = map[Key]bool{}
	)
	entries := r.holds.Iterate()
	for entries.Next(&key, &value) {
		h := Hold{PID: int(key.Pid), TID: int(key.Tid), At: time.Duration(key.Time), Start: time.Duration(value.Start), Phase: Phase(value.Phase)}
		h.Sent = h.Phase == Stopped
		if seen[h.Key()] { // the record changed, and the iteration began again
			continue
		}
		seen[h.Key()] = true
		if err := r.complete(key, &h); err != nil {
			return all, err
		}
		// Forget removes first the hold, then what others wrote about it.
		if err := r.holds.Lookup(key, &value); errors.Is(err, ebpf.ErrKeyNotExist) {
			continue
		} else if err != nil {
			return all, fmt.Errorf("record of who is stopped: %w", err)
		}
		all = append(all, h)
	}
	slices.SortFunc(all, func(a, b Hold) int { return int(a.At - b.At) })
	// A caller that needs all of them lists again until there are none.
	if err := entries.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return all, fmt.Errorf("record of who is stopped: %w", err)
	}
	return all, nil
}

// complete adds what others than the thread wrote about a hold.
func (r *Record) complete(key cudabpf.MemoryHoldKey, h *Hold) error {
	var lease uint64
	var ended cudabpf.MemoryRelease
	lerr, rerr := r.leases.Lookup(key, &lease), r.released.Lookup(key, &ended)
	h.Lease = time.Duration(lease)
	if rerr == nil {
		h.Phase, h.Ending = Released, time.Duration(ended.Time)
		if ended.Continued != 0 {
			h.Phase = Continued
		}
	}
	for _, err := range []error{lerr, rerr} {
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("record of who is stopped: %w", err)
		}
	}
	return nil
}

func (h Hold) key() cudabpf.MemoryHoldKey {
	return cudabpf.MemoryHoldKey{Pid: uint32(h.PID), Tid: uint32(h.TID), Time: uint64(h.At)}
}

// Renew keeps a hold until then.
func (r *Record) Renew(h Hold, until time.Duration) error {
	return r.leases.Put(h.key(), uint64(until))
}

// Release marks a hold Released.
func (r *Record) Release(h Hold, now time.Duration) error {
	err := r.released.Update(h.key(), cudabpf.MemoryRelease{Time: uint64(now)}, ebpf.UpdateNoExist)
	if errors.Is(err, ebpf.ErrKeyExist) {
		return nil
	}
	return err
}

// Mark marks a hold Continued.
func (r *Record) Mark(h Hold, now time.Duration) error {
	return r.released.Put(h.key(), cudabpf.MemoryRelease{Time: uint64(now), Continued: 1})
}

// Forget removes a hold, and then what others wrote about it.
func (r *Record) Forget(h Hold) error {
	var errs []error
	for _, m := range []*ebpf.Map{r.holds, r.leases, r.released} {
		if err := m.Delete(h.key()); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			errs = append(errs, fmt.Errorf("record of who is stopped: %w", err))
		}
	}
	return errors.Join(errs...)
}

// Tidy removes what others wrote about holds that are not on record; a late Renew or Release leaves
// it behind. It considers holds that began before the given time: a hold is recorded before anybody
// writes about it.
func (r *Record) Tidy(before time.Duration) error {
	var errs []error
	for _, m := range []*ebpf.Map{r.leases, r.released} {
		var key cudabpf.MemoryHoldKey
		var value []byte
		var old []cudabpf.MemoryHoldKey
		for entries := m.Iterate(); entries.Next(&key, &value); {
			var hold cudabpf.MemoryHold
			if key.Time < uint64(before) && errors.Is(r.holds.Lookup(key, &hold), ebpf.ErrKeyNotExist) {
				old = append(old, key)
			}
		}
		for _, key := range old {
			if err := m.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}
