package channels

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/internal/rm"
)

// Record is what we changed of one process, or are about to change. It is all that is
// needed to undo it.
type Record struct {
	PID int `json:"pid"`
	// Start is in clock ticks since boot.
	Start     uint64 `json:"start"`
	Container string `json:"container,omitempty"`
	Reason    string `json:"reason,omitempty"`
	// Until is when the lease of what is off ends, in nanoseconds since boot.
	Until  time.Duration `json:"until,omitempty"`
	Groups []Entry       `json:"groups"`

	unreadable bool
}

// Entry is one channel group on record.
type Entry struct {
	GPU       string   `json:"gpu"`
	FD        int      `json:"fd"`
	Client    uint32   `json:"client"`
	Subdevice uint32   `json:"subdevice"`
	Handle    uint32   `json:"handle"`
	Class     uint32   `json:"class"`
	Channels  []uint32 `json:"channels"`
	// Off: we take, or have taken, the channels off.
	Off bool `json:"off,omitempty"`
	// Slice is what we set, or are about to set; Was what we had set before that; Own what
	// it was when we came. 0: nothing.
	Slice time.Duration `json:"slice,omitempty"`
	Was   time.Duration `json:"was,omitempty"`
	Own   time.Duration `json:"own,omitempty"`
}

// Process is whose record it is.
func (r Record) Process() rm.Process { return rm.Process{PID: r.PID, Start: r.Start} }

// Off reports whether any of its channels may be off.
func (r Record) Off() bool {
	return r.unreadable || slices.ContainsFunc(r.Groups, func(e Entry) bool { return e.Off })
}

func (r Record) empty() bool {
	return !r.unreadable && !slices.ContainsFunc(r.Groups, func(e Entry) bool { return e.Off || e.Slice != 0 })
}

// key names a group within its process.
type key struct{ client, handle uint32 }

func keyOf(g rm.Group) key { return key{g.Client, g.Handle} }

func (e Entry) key() key { return key{e.Client, e.Handle} }

func (e Entry) group(p rm.Process) rm.Group {
	return rm.Group{Process: p, GPU: e.GPU, FD: e.FD, Client: e.Client, Subdevice: e.Subdevice,
		Handle: e.Handle, Class: e.Class, Channels: e.Channels}
}

// entry finds a group's entry, or makes one.
func (r *Record) entry(g rm.Group) *Entry {
	for i := range r.Groups {
		if r.Groups[i].key() == keyOf(g) {
			return &r.Groups[i]
		}
	}
	r.Groups = append(r.Groups, Entry{GPU: g.GPU, FD: g.FD, Client: g.Client, Subdevice: g.Subdevice,
		Handle: g.Handle, Class: g.Class, Channels: slices.Clone(g.Channels)})
	return &r.Groups[len(r.Groups)-1]
}

// Now is the time since boot, suspended time included: the clock of the record.
func Now() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) // every Linux has it
	return time.Duration(now.Nano())
}

// Folder is where the actuator with this state folder has its record, in a folder that a
// reboot empties, such as /run/laxity.
func Folder(runDir, stateDir string) string {
	if abs, err := filepath.Abs(stateDir); err == nil {
		stateDir = abs
	}
	sum := sha256.Sum256([]byte(stateDir))
	return filepath.Join(runDir, "channels", hex.EncodeToString(sum[:8]))
}

// records is a folder with a file for each process.
type records struct{ dir string }

const suffix = ".json"

// openRecords makes nothing: the folder is made when there is something to put in it.
func openRecords(dir string) (records, error) {
	if stat, err := os.Stat(dir); err == nil && !stat.IsDir() {
		return records{}, fmt.Errorf("the channels' record: %s is not a folder", dir)
	}
	return records{dir}, nil
}

func (r records) path(p rm.Process) string {
	return filepath.Join(r.dir, fmt.Sprintf("%d-%d%s", p.PID, p.Start, suffix))
}

// put replaces a record, which is complete at once. It is not synced to a disk: it has to
// survive our death, and what it is about does not survive the machine's.
func (r records) put(rec Record) error {
	text, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	path := r.path(rec.Process())
	if err := os.WriteFile(path+".tmp", append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("put channels on record (is the folder full?): %w", err)
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return fmt.Errorf("put channels on record: %w", err)
	}
	return nil
}

func (r records) remove(p rm.Process) error {
	if err := os.Remove(r.path(p)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("take channels off the record: %w", err)
	}
	return nil
}

func (r records) has(p rm.Process) bool {
	_, err := os.Stat(r.path(p))
	return !errors.Is(err, fs.ErrNotExist)
}

// get returns an empty record where there is none.
func (r records) get(p rm.Process) (Record, error) {
	rec := Record{PID: p.PID, Start: p.Start}
	text, err := os.ReadFile(r.path(p))
	if errors.Is(err, fs.ErrNotExist) {
		return rec, nil
	}
	if err != nil {
		return rec, fmt.Errorf("read the record of channels: %w", err)
	}
	var found Record
	if err := json.Unmarshal(text, &found); err == nil && found.Process() == p {
		return found, nil
	}
	rec.unreadable = true // its name alone says whom we touched
	return rec, nil
}

func (r records) list() ([]Record, error) {
	files, err := os.ReadDir(r.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the record of channels: %w", err)
	}
	var all []Record
	for _, f := range files {
		p, ok := processOf(f.Name())
		if !ok {
			continue
		}
		rec, err := r.get(p)
		if err != nil {
			return nil, err
		}
		if !rec.empty() { // it was there when the folder was read, and may be gone by now
			all = append(all, rec)
		}
	}
	slices.SortFunc(all, func(a, b Record) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.PID, b.PID))
	})
	return all, nil
}

func processOf(name string) (p rm.Process, ok bool) {
	pid, start, ok := strings.Cut(strings.TrimSuffix(name, suffix), "-")
	if !ok || !strings.HasSuffix(name, suffix) {
		return p, false
	}
	var errPID, errStart error
	p.PID, errPID = strconv.Atoi(pid)
	p.Start, errStart = strconv.ParseUint(start, 10, 64)
	return p, errPID == nil && errStart == nil
}
