package cudaprobe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// bpfFS is where the kernel's file system for BPF objects is mounted by custom.
const bpfFS = "/sys/fs/bpf"

// gateMaps are what the gate's programs share. held and until outlive us, under
// names in the BPF file system: whoever lets go after our death reads them.
type gateMaps struct {
	maps
	admitted *ebpf.Map // PID: may launch
	back     *ebpf.Map // PID: must not create a context
	held     *ebpf.Map // PID → when and which process was stopped
	until    *ebpf.Map // one time: nobody is stopped later than that
}

const heldSize = 24 // time, start, PID, thread: the begin of an event

func newGateMaps(pins string) (m gateMaps, err error) {
	_ = rlimit.RemoveMemlock() // see newMaps
	for _, want := range []struct {
		to   **ebpf.Map
		spec ebpf.MapSpec
	}{
		{&m.ring, ebpf.MapSpec{Name: "laxity_gate", Type: ebpf.RingBuf, MaxEntries: 256 << 10}},
		{&m.lost, ebpf.MapSpec{Name: "laxity_glost", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1}},
		{&m.busy, ebpf.MapSpec{Name: "laxity_gbusy", Type: ebpf.Hash, KeySize: 4, ValueSize: busySize, MaxEntries: 4096}},
		{&m.calls, ebpf.MapSpec{Name: "laxity_gcalls", Type: ebpf.LRUHash, KeySize: 8, ValueSize: 16, MaxEntries: 8192}},
		{&m.admitted, ebpf.MapSpec{Name: "laxity_admit", Type: ebpf.Hash, KeySize: 4, ValueSize: 4, MaxEntries: 4096}},
		{&m.back, ebpf.MapSpec{Name: "laxity_back", Type: ebpf.Hash, KeySize: 4, ValueSize: 4, MaxEntries: 4096}},
		{&m.held, ebpf.MapSpec{Name: "laxity_held", Type: ebpf.Hash, KeySize: 4, ValueSize: heldSize, MaxEntries: 4096}},
		{&m.until, ebpf.MapSpec{Name: "laxity_until", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1}},
	} {
		made, err := ebpf.NewMap(&want.spec)
		if err != nil {
			return m, err
		}
		*want.to = made
	}
	return m, pin(pins, m.held, m.until)
}

// pin gives the maps of a record their names. What was there before belongs to one
// who is dead and has been opened; its programs, if they still run, keep their maps.
func pin(folder string, held, until *ebpf.Map) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	for name, one := range map[string]*ebpf.Map{"held": held, "until": until} {
		path := filepath.Join(folder, name)
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := one.Pin(path); err != nil {
			return err
		}
	}
	return nil
}

// Close gives the maps back. Their names stay, for whoever lets go.
func (m gateMaps) Close() error {
	errs := []error{m.maps.Close()}
	for _, one := range []*ebpf.Map{m.admitted, m.back, m.held, m.until} {
		if one != nil {
			errs = append(errs, one.Close())
		}
	}
	return errors.Join(errs...)
}

// mountBPF makes sure that pins can be made below the custom place.
func mountBPF() error {
	var stat unix.Statfs_t
	if err := unix.Statfs(bpfFS, &stat); err == nil && stat.Type == unix.BPF_FS_MAGIC {
		return nil
	}
	if err := unix.Mount("bpf", bpfFS, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700"); err != nil {
		return fmt.Errorf("%w: no BPF file system at %s, and it cannot be mounted: %w (mount -t bpf bpf %s)", ErrUnsupported, bpfFS, err, bpfFS)
	}
	return nil
}

// HeldProcess is one process on a record.
type HeldProcess struct {
	PID   int
	Since time.Time
	// Start is when the process started, since boot; 0 where not known.
	Start time.Duration
}

// Record is the part of a Gate that outlives it: which processes it has stopped, and
// until when it stops any.
type Record struct{ held, until *ebpf.Map }

// OpenRecord opens the record with these pins. The error wraps
// fs.ErrNotExist when there was never one, or when it was removed.
func OpenRecord(pins string) (*Record, error) {
	held, err := ebpf.LoadPinnedMap(filepath.Join(pins, "held"), nil)
	if err != nil {
		return nil, fmt.Errorf("record of the gate: %w", err)
	}
	until, err := ebpf.LoadPinnedMap(filepath.Join(pins, "until"), nil)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("record of the gate: %w", err), held.Close())
	}
	return &Record{held: held, until: until}, nil
}

// Close closes the record; it stays.
func (r *Record) Close() error { return errors.Join(r.held.Close(), r.until.Close()) }

// Open lets everybody pass from now on, until somebody renews.
func (r *Record) Open() error { return r.until.Put(uint32(0), uint64(0)) }

// Renew lets the gate stop processes for this long from now; later it is open,
// whether anybody opens it or not. A new gate is open.
func (r *Record) Renew(d time.Duration) error {
	return r.until.Put(uint32(0), uint64(monotonic()+max(d, 0)))
}

// Expired reports whether the gate is open because nobody has renewed it.
func (r *Record) Expired() (bool, error) {
	var until uint64
	if err := r.until.Lookup(uint32(0), &until); err != nil {
		return false, fmt.Errorf("record of the gate: %w", err)
	}
	return until <= uint64(monotonic()), nil
}

// List returns the processes that are on record.
func (r *Record) List() ([]HeldProcess, error) {
	var (
		all   []HeldProcess
		raw   [heldSize]byte
		clock = readClocks()
		key   uint32
	)
	entries := r.held.Iterate()
	for entries.Next(&key, &raw) {
		at, _ := clock.wall(binary.NativeEndian.Uint64(raw[:]))
		all = append(all, HeldProcess{
			PID: int(key), Since: at, Start: time.Duration(binary.NativeEndian.Uint64(raw[8:])),
		})
	}
	// A record that changes meanwhile can end the walk early; who needs them all
	// lists again until there are none.
	if err := entries.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return all, fmt.Errorf("record of who is stopped: %w", err)
	}
	return all, nil
}

// Forget takes a process off the record.
func (r *Record) Forget(pid int) error {
	if err := r.held.Delete(uint32(pid)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("record of who is stopped: %w", err)
	}
	return nil
}

// RemoveRecord removes the names of a record that nobody needs any more.
func RemoveRecord(pins string) error { return os.RemoveAll(pins) }
