package channels_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laxity/laxity/actuator/enforce/channels"
)

// Whatever stands in a record, its process is on record by the name of the file, and an undo
// switches on all of it or leaves it on record; others are undone, and nobody else is touched.
func FuzzRecord(f *testing.F) {
	for _, seed := range []string{"", "{", "null", "[]", "\x00\xff", "=", // = is the record as it is
		`{"pid":1,"start":START}`, `{"pid":2,"start":START,"groups":[{"off":true}]}`, `{"pid":1,"start":START,"groups":[null]}`,
		`{"pid":1,"start":START,"groups":[{"gpu":"GPU-0","fd":-1,"client":4294967295,"handle":1,"channels":[1,1,1],"off":true}]}`,
		`{"pid":1,"start":START,"until":-1,"groups":[{"gpu":"GPU-0","client":1,"handle":1,"slice":-5,"was":1,"own":99999999999999}]}`,
		`{"pid":1,"start":START,"until":9223372036854775807,"groups":[{"slice":1000000,"own":2000000},{"slice":1000000}]}`} {
		f.Add([]byte(seed), "")
	}
	for _, name := range []string{"1-1.json", "01-1.json", "-1-1.json", "1-18446744073709551615.json", "9-x.json", "x.json.tmp", ".json", "lock.json"} {
		f.Add([]byte("{"), name)
	}
	f.Fuzz(func(t *testing.T, data []byte, beside string) {
		dir := channels.Folder(inMemory(t), "state")
		r := newRigIn(t, dir, channels.Options{})
		p, other, free := r.Start(1, gpuNames[0]), r.Start(2, gpuNames[0]), r.Start(3, gpuNames[0])
		for range 2 {
			_, err := r.Apply(t.Context(), target(p, other), channels.Standing{Off: true, Slice: channels.MaxSlice})
			check(t, err, nil)
		}
		path := filepath.Join(dir, fmt.Sprintf("%d-%d.json", p.PID, p.Start))
		if string(data) != "=" {
			data = []byte(strings.ReplaceAll(string(data), "START", fmt.Sprint(p.Start)))
			check(t, os.WriteFile(path, data, 0o600), nil)
		}
		if beside != "" && beside == filepath.Base(beside) && filepath.IsLocal(beside) {
			_ = os.WriteFile(filepath.Join(dir, beside), data, 0o600) // another record, or no name of a file
		}
		e, err := channels.New(channels.Options{Driver: r.driver, Dir: dir, State: r.State}) // a new actuator
		check(t, err, nil)
		before, err := e.Records()
		check(t, err, nil)
		_, _ = e.Sweep(t.Context(), 0)
		_, errUndo := e.RestoreAll(t.Context())
		after, err := e.Records()
		check(t, err, nil)
		if (errUndo == nil) != (len(after) == 0) {
			t.Errorf("undone: %v, and on record: %+v", errUndo, after)
		}
		for _, list := range [][]channels.Record{before, after} {
			for i, rec := range list {
				if rec.PID <= 0 || i > 0 && rec.Process() == list[i-1].Process() {
					t.Errorf("on record: %+v", list)
				}
			}
		}
		if r.Off(other) > 0 && beside != fmt.Sprintf("%d-%d.json", other.PID, other.Start) {
			t.Error("another one is still off")
		}
		if aside := channels.PutAside(dir); len(aside) > 0 && r.Off(p) > 0 && errUndo == nil && beside == "" {
			t.Errorf("%d channels are off, and put aside: %v", r.Off(p), aside)
		}
		if r.Off(free) > 0 || len(r.Wrong()) > 0 {
			t.Errorf("who was not on record is touched: %v", r.Wrong())
		}
	})
}

// inMemory is a folder for a test on a file system in memory, as /run is; on a disk where
// there is none.
func inMemory(t *testing.T) string {
	t.Helper()
	const memory = "/dev/shm"
	if _, err := os.Stat(memory); err != nil {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(memory, "laxity-test-")
	check(t, err, nil)
	t.Cleanup(func() { check(t, os.RemoveAll(dir), nil) })
	return dir
}
