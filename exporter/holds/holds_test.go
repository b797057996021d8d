package holds_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/exporter/holds"
)

const (
	on  = `{"pid":%d,"start":%d,"container":"a","groups":[{"gpu":"GPU-1","slice":100000}]}`
	off = `{"pid":%d,"start":%d,"until":5,"groups":[{"gpu":"GPU-1","slice":100000},{"gpu":"GPU-1","off":true}]}`
)

// board is a folder of records, and who follows it.
type board struct {
	t        testing.TB
	dir      string
	reported chan map[int]time.Duration
	errs     chan error
}

func follow(t testing.TB, dir string) board {
	b := board{t, dir, make(chan map[int]time.Duration, 100), make(chan error, 100)}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		holds.Dir(dir).Follow(ctx, func(off map[int]time.Duration, _ time.Time) { b.reported <- off }, func(err error) { b.errs <- err })
	}()
	t.Cleanup(func() { stop(); <-ended })
	return b
}

// put replaces a record as its writer does.
func (b board) put(folder, format string, pid, start int) {
	b.t.Helper()
	path := filepath.Join(b.dir, folder, fmt.Sprintf("%d-%d.json", pid, start))
	err := os.WriteFile(path+".tmp", fmt.Appendf(nil, format, pid, start), 0o600)
	if err = errors.Join(err, os.Rename(path+".tmp", path)); err != nil {
		b.t.Fatal(err)
	}
}

func (b board) make(folder string) {
	b.t.Helper()
	if err := os.MkdirAll(filepath.Join(b.dir, folder), 0o700); err != nil {
		b.t.Fatal(err)
	}
}

func (b board) remove(path string) {
	b.t.Helper()
	if err := os.RemoveAll(filepath.Join(b.dir, path)); err != nil {
		b.t.Fatal(err)
	}
}

// expect waits until exactly these are off: PID and start in ticks.
func (b board) expect(pairs ...int) {
	b.t.Helper()
	want := map[int]time.Duration{}
	for i := 0; i < len(pairs); i += 2 {
		want[pairs[i]] = time.Duration(pairs[i+1]) * 10 * time.Millisecond
	}
	var last map[int]time.Duration
	for {
		select {
		case last = <-b.reported:
			if maps.Equal(last, want) {
				return
			}
		case err := <-b.errs:
			b.t.Fatal(err)
		case <-time.After(20 * time.Second):
			b.t.Fatalf("reported last: %v, want %v", last, want)
		}
	}
}

func TestFollow(t *testing.T) {
	b := board{t: t, dir: t.TempDir()}
	b.make("one")
	b.put("one", off, 7, 100)
	b.put("one", on, 8, 100)
	b = follow(t, b.dir)
	b.expect(7, 100) // what was so before
	b.put("one", off, 8, 100)
	b.expect(7, 100, 8, 100)
	b.put("one", on, 7, 100)
	b.expect(8, 100)
	b.remove("one/8-100.json")
	b.expect()
	b.make("two") // of another actuator
	b.put("two", off, 9, 5)
	b.expect(9, 5)
	b.put("two", off, 9, 6) // its PID was used again
	b.expect(9, 6)
	b.remove("two")
	b.expect()
	b.make("two")
	b.put("two", off, 9, 6)
	b.expect(9, 6)
	b.remove("")
	b.expect()
	b.make("one") // within a second it is found again
	b.put("one", off, 7, 100)
	b.expect(7, 100)
}

func TestFolderThatComesLater(t *testing.T) {
	b := follow(t, filepath.Join(t.TempDir(), "laxity", "channels"))
	b.expect()
	b.make("one")
	b.put("one", off, 7, 100)
	b.expect(7, 100)
}

// Each record that cannot be read is warned about once, also after another one was mended or removed.
func TestUnreadableRecordIsToldOnce(t *testing.T) {
	b := board{t: t, dir: t.TempDir()}
	b.make("one")
	b.put("one", "{", 3, 1)
	b = follow(t, b.dir)
	warned := func(name string) {
		t.Helper()
		select {
		case err := <-b.errs:
			if !strings.Contains(err.Error(), "record") || !strings.Contains(err.Error(), name) {
				t.Error(err)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("nobody is told of %s", name)
		}
	}
	warned("3-1.json")
	b.put("one", "{", 3, 1)   // still bad
	b.put("one", off, 7, 100) // expect fails at a warning
	b.expect(7, 100)
	b.make("two") // a scan
	b.put("two", off, 8, 100)
	b.expect(7, 100, 8, 100)
	b.remove("one/3-1.json")
	b.put("one", "{", 4, 1)
	warned("4-1.json")
	b.put("one", off, 4, 1)
	b.expect(4, 1, 7, 100, 8, 100)
	b.put("one", "{", 4, 1)
	warned("4-1.json")
	b.expect(7, 100, 8, 100)
}

// What a turn costs the exporter: a record that is replaced, seen and reported.
func BenchmarkTurn(b *testing.B) {
	x := board{t: b, dir: b.TempDir()}
	x.make("one")
	x = follow(b, x.dir)
	x.expect()
	for i := range b.N {
		if i%2 == 0 {
			x.put("one", off, 7, 100)
		} else {
			x.put("one", on, 7, 100)
		}
		<-x.reported
	}
}
