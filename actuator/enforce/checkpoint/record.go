package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/internal/aside"
)

// Record has what is needed to bring a container back after a crash.
type Record struct {
	enforce.Swapped
	// Processes are those that use CUDA.
	Processes []Process `json:"processes"`
	// Doubtful: the outcome of a lock is not known. It may still take effect.
	Doubtful bool `json:"doubtful,omitempty"`
	// Notice is the file that tells the exporter.
	Notice string `json:"notice,omitempty"`
}

// Process is one process of a container that uses CUDA.
type Process struct {
	PID int `json:"pid"`
	// Start is in clock ticks since the boot.
	Start uint64 `json:"start"`
	// Bytes is what it held on each GPU, by UUID.
	Bytes map[string]uint64 `json:"bytes,omitempty"`
}

// maxBytes is more than any process holds on a GPU. With a larger number, a damaged record would wait
// for room that no GPU has.
const maxBytes = 1 << 50

// whole returns an error if the record of container id is damaged although it can be decoded. We
// write to, remove and wake what a record names, so one wrong field makes the whole record damaged.
func (rec Record) whole(id string) error {
	switch {
	case rec.ContainerID != id:
		return errors.New("it is of another container")
	case !slices.Contains([]enforce.SwapStage{enforce.Suspending, enforce.Suspended, enforce.Resuming, enforce.Stuck}, rec.Stage):
		return fmt.Errorf("its stage is %q", rec.Stage)
	case rec.Notice != "" && (!filepath.IsAbs(rec.Notice) || filepath.Base(rec.Notice) != noticeName(id)):
		return fmt.Errorf("its notice is %q", rec.Notice)
	}
	for _, p := range rec.Processes {
		if p.PID <= 0 || p.Start == 0 {
			return fmt.Errorf("it names process %d, started at %d", p.PID, p.Start)
		}
		for uuid, b := range p.Bytes {
			if b > maxBytes {
				return fmt.Errorf("process %d holds %d bytes on %s", p.PID, b, uuid)
			}
		}
	}
	return nil
}

// records is a folder of records, one file for each container. notices is the folder of notices for
// the exporter; empty: there is none.
type records struct{ dir, notices string }

var safeID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$`)

func openRecords(stateDir, notices string) (records, error) {
	dir := Folder(stateDir)
	err := os.MkdirAll(dir, 0o700)
	if s, serr := os.Stat(dir); err != nil && serr == nil && !s.IsDir() { // something else in its place
		if _, err = aside.Put(dir, err); err == nil {
			err = os.MkdirAll(dir, 0o700)
		}
	}
	if err != nil {
		return records{}, fmt.Errorf("make the folder of swaps (choose a writable --state-dir): %w", err)
	}
	return records{dir, notices}, nil
}

// Folder is where swaps are on record.
func Folder(stateDir string) string { return filepath.Join(stateDir, "swaps") }

// Recorded counts what is on record, without making anything.
func Recorded(stateDir string) (int, error) {
	files, err := filepath.Glob(filepath.Join(Folder(stateDir), "*.json"))
	return len(files), err
}

func (r records) path(id string) (string, error) {
	if !safeID.MatchString(id) {
		return "", fmt.Errorf("%q is not a container id", id)
	}
	return filepath.Join(r.dir, id+".json"), nil
}

// put writes the record, and the notice after it. When it returns nil both are there.
func (r records) put(rec Record) error {
	path, err := r.path(rec.ContainerID)
	if err != nil {
		return err
	}
	text, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	if err := replace(path, text, 0o600); err != nil || rec.Notice == "" {
		return err
	}
	return rec.publish()
}

// replace writes a file atomically. It does not sync the file to the disk, which would slow every
// step down: the record must survive our death, and after a crash of the machine there is nothing to
// bring back.
func replace(path string, text []byte, mode os.FileMode) error {
	temporary := path + ".tmp"
	if err := os.WriteFile(temporary, append(text, '\n'), mode); err != nil {
		return fmt.Errorf("put a swap on record (is the disk full?): %w", err)
	}
	return os.Rename(temporary, path)
}

// notice is what the exporter reads (exporter/swaps): the processes that may be missing from the
// device's list although they have not ended.
type notice struct {
	ContainerID string          `json:"container_id"`
	Processes   []noticeProcess `json:"processes"`
}

type noticeProcess struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start_ticks"`
}

func noticeName(id string) string { return id + ".json" }

func (r records) notice(id string) string {
	if r.notices == "" {
		return ""
	}
	return filepath.Join(r.notices, noticeName(id))
}

func (rec Record) publish() error {
	n := notice{ContainerID: rec.ContainerID}
	for _, p := range rec.Processes {
		n.Processes = append(n.Processes, noticeProcess{p.PID, p.Start})
	}
	text, err := json.Marshal(n)
	if err != nil {
		return err
	}
	return replace(rec.Notice, text, 0o644) // the exporter may be another user
}

func (r records) remove(rec Record) error {
	path, err := r.path(rec.ContainerID)
	if err != nil {
		return err
	}
	if rec.Notice != "" {
		if err := os.Remove(rec.Notice); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (r records) get(id string) (Record, bool, error) {
	path, err := r.path(id)
	if err != nil {
		return Record{}, false, err
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, false, nil
	}
	var rec Record
	if err == nil {
		err = json.Unmarshal(text, &rec)
	}
	if err == nil {
		err = rec.whole(id)
	}
	if err != nil {
		// The name is enough to bring the container back: the driver says what state its processes are
		// in.
		rec = Record{Notice: r.notice(id), Swapped: enforce.Swapped{ContainerID: id, Container: id, Stage: enforce.Suspending,
			Error: fmt.Sprintf("record cannot be read: %v", err)}}
	}
	return rec, true, nil
}

func (r records) list() ([]Record, error) {
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return nil, err
	}
	var all []Record
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok || e.IsDir() || !safeID.MatchString(id) {
			continue
		}
		rec, ok, err := r.get(id)
		if err != nil {
			return nil, err
		}
		if ok {
			all = append(all, rec)
		}
	}
	slices.SortStableFunc(all, func(a, b Record) int { return a.Since.Compare(b.Since) })
	return all, nil
}
