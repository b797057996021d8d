package channels

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/internal/aside"
	"github.com/laxity/laxity/internal/rm"
	"github.com/laxity/laxity/internal/statefolder"
)

// Record is what we changed of one process, or are about to change. It suffices to undo that.
type Record struct {
	PID int `json:"pid"`
	// Start is in clock ticks since boot.
	Start     uint64 `json:"start"`
	Container string `json:"container,omitempty"`
	Reason    string `json:"reason,omitempty"`
	// Until is when the lease of what is off ends, in nanoseconds since boot.
	Until  time.Duration `json:"until,omitempty"`
	Groups []Entry       `json:"groups"`

	// damaged says why the record cannot be read: only its name then tells which process we touched.
	damaged error
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
	// Off: we take, or have taken, the channels off the GPU.
	Off bool `json:"off,omitempty"`
	// Slice is what we set or are about to set. Was is what we had set before. Own is what the group
	// had when we came. 0: nothing.
	Slice time.Duration `json:"slice,omitempty"`
	Was   time.Duration `json:"was,omitempty"`
	Own   time.Duration `json:"own,omitempty"`
}

// Process returns the process that the record is about.
func (r Record) Process() rm.Process { return rm.Process{PID: r.PID, Start: r.Start} }

// Off reports whether any of its channels may be off.
func (r Record) Off() bool {
	return r.damaged != nil || slices.ContainsFunc(r.Groups, func(e Entry) bool { return e.Off })
}

func (r Record) empty() bool {
	return r.damaged == nil && !slices.ContainsFunc(r.Groups, func(e Entry) bool { return e.Off || e.Slice != 0 })
}

// key identifies a group within its process.
type key struct{ client, handle uint32 }

func keyOf(g rm.Group) key { return key{g.Client, g.Handle} }

func (e Entry) key() key { return key{e.Client, e.Handle} }

func (e Entry) group(p rm.Process) rm.Group {
	return rm.Group{Process: p, GPU: e.GPU, FD: e.FD, Client: e.Client, Subdevice: e.Subdevice,
		Handle: e.Handle, Class: e.Class, Channels: e.Channels}
}

// entry finds a group's entry, or adds one.
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

// Now returns the time since boot, suspended time included: the clock of the record.
func Now() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) // every Linux has it
	return time.Duration(now.Nano())
}

// Folder is the folder of the record for the actuator with this state folder. runDir is a folder
// that a reboot empties, such as /run/laxity.
func Folder(runDir string, state statefolder.ID) string {
	return filepath.Join(runDir, "channels", string(state))
}

// records is a folder with one file per process.
type records struct {
	dir string
	log *slog.Logger
}

const suffix = ".json"

// open puts aside whatever is in the place of the folder, or of the folder above it that actuators
// share, and is no folder. It makes no folder: put does.
func (r records) open() error {
	for _, dir := range []string{filepath.Dir(r.dir), r.dir} {
		stat, err := os.Lstat(dir)
		if err != nil {
			continue // nothing is there
		}
		if mode := stat.Mode(); !mode.IsDir() && !mode.IsRegular() && mode.Type() != fs.ModeSymlink {
			return fmt.Errorf("the record of channels: %s is a device or the like (move it away, or choose another folder)", dir)
		}
		if stat, err := os.Stat(dir); err == nil && stat.IsDir() {
			continue
		}
		if err := r.putAside(dir, errNoFolder); err != nil {
			return err
		}
	}
	return nil
}

// PutAside lists what was put aside of the record in this folder (see Folder), without paths.
func PutAside(dir string) []string {
	return slices.Concat(aside.Of(filepath.Dir(dir), dir), aside.List(dir))
}

var (
	errNoFolder = errors.New("it is no folder")
	errNoFile   = errors.New("it is no file")
)

func (r records) putAside(path string, why error) error {
	damaged, err := aside.Put(path, why)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // another program was faster
	}
	if err != nil {
		return fmt.Errorf("the record of channels: %w", err)
	}
	r.log.Error("the record of channels is damaged", "err", damaged)
	return nil
}

func fileName(p rm.Process) string { return fmt.Sprintf("%d-%d%s", p.PID, p.Start, suffix) }

func (r records) path(p rm.Process) string {
	return filepath.Join(r.dir, fileName(p))
}

// put replaces a record atomically. It does not sync to disk: the record must survive our death,
// and the changes that it describes do not survive the machine's.
func (r records) put(rec Record) error {
	text, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	path := r.path(rec.Process())
	write := func() error { return os.WriteFile(path+".tmp", append(text, '\n'), 0o600) }
	if err := r.despite(path+".tmp", write); err != nil {
		return fmt.Errorf("put channels on record (is the folder full?): %w", err)
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return fmt.Errorf("put channels on record: %w", err)
	}
	return nil
}

// despite runs do on a file. It puts a folder in the file's place aside.
func (r records) despite(path string, do func() error) error {
	err := do()
	if stat, serr := os.Stat(path); err == nil || serr != nil || !stat.IsDir() {
		return err
	}
	if err := r.putAside(path, errNoFile); err != nil {
		return err
	}
	return do()
}

// remove deletes the record of a process with nothing left to undo. It puts an unreadable record
// aside.
func (r records) remove(p rm.Process, damaged error) error {
	if damaged != nil {
		return r.putAside(r.path(p), damaged)
	}
	if err := os.Remove(r.path(p)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("take channels off the record: %w", err)
	}
	return nil
}

func (r records) has(p rm.Process) bool {
	_, err := os.Stat(r.path(p))
	return !errors.Is(err, fs.ErrNotExist)
}

// get returns an empty record where there is none, and a damaged one where only its name can be
// read.
func (r records) get(p rm.Process) Record {
	rec := Record{PID: p.PID, Start: p.Start}
	text, err := os.ReadFile(r.path(p))
	if errors.Is(err, fs.ErrNotExist) {
		return rec
	}
	var found Record
	if err == nil {
		err = json.Unmarshal(text, &found)
	}
	if err == nil {
		err = found.whole(p)
	}
	if err != nil {
		rec.damaged = err
		return rec
	}
	return found
}

// whole returns why a decoded record of p is damaged; nil if it is not. If one part is wrong, any
// other may be: nothing of it is believed.
func (r Record) whole(p rm.Process) error {
	if r.Process() != p {
		return fmt.Errorf("it is of process %d, started at %d", r.PID, r.Start)
	}
	ours := func(d time.Duration) bool { return d == 0 || MinSlice <= d && d <= MaxSlice }
	for i, e := range r.Groups {
		switch {
		case !ours(e.Slice), !ours(e.Was), !ours(e.Own), e.FD < 0:
			return fmt.Errorf("descriptor %d has slices of %v, %v and %v", e.FD, e.Slice, e.Was, e.Own)
		case slices.ContainsFunc(r.Groups[:i], func(other Entry) bool { return other.key() == e.key() }):
			return fmt.Errorf("group %#x is in it twice", e.Handle)
		}
	}
	return nil
}

// names lists the files of the folder.
func (r records) names() ([]string, error) {
	dir, err := os.Open(r.dir)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.Readdirnames(-1)
}

// none reports whether the record is empty.
func (r records) none() bool {
	names, err := r.names()
	return err == nil && !slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(name, suffix) })
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
		if rec := r.get(p); !rec.empty() { // it may have been removed since the folder was read
			all = append(all, rec)
		}
	}
	slices.SortFunc(all, func(a, b Record) int {
		return byAge(a.Process(), b.Process())
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
	// The name must be as path writes it: otherwise get would not find the record again.
	return p, errPID == nil && errStart == nil && p.PID > 0 && name == fileName(p)
}
