package proc_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/actuator/enforce/proc"
)

const driver = "7f00-7f10 r-xp 00000000 08:01 34                /usr/lib/libcuda.so.1\n"

// machine is a folder like /proc. Each of its processes is in the container with the
// letter that stands after its PID.
type machine struct {
	*testing.T
	proc string
	of   map[int]string
}

func newMachine(t *testing.T) *machine {
	return &machine{T: t, proc: t.TempDir(), of: map[int]string{}}
}

func (m *machine) run(pid int, of, maps string) (path string) {
	m.Helper()
	path = filepath.Join(m.proc, fmt.Sprint(pid), "maps")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(maps), 0o644); err != nil {
		m.Fatal(err)
	}
	m.of[pid] = of
	return path
}

// search looks for those in containers a and b.
func (m *machine) search(now func() time.Time) (found []int, err error) {
	members, err := proc.Members(m.proc, func(pid int) (string, bool) {
		return m.of[pid], m.of[pid] == "a" || m.of[pid] == "b"
	})
	errs := []error{err}
	for of, pids := range members {
		errs = append(errs, proc.Search{Proc: m.proc, Now: now}.Loaded(pids, func(pid int) {
			if of != m.of[pid] {
				m.Errorf("process %d is in %s, not %s", pid, m.of[pid], of)
			}
			found = append(found, pid)
		}))
	}
	slices.Sort(found)
	return found, errors.Join(errs...)
}

func TestLoaded(t *testing.T) {
	m := newMachine(t)
	m.run(1, "host", driver)
	m.run(2, "a", "55a0-55b0 r-xp 00000000 08:01 12 /bin/cat\n"+driver)
	m.run(3, "a", "55a0-55b0 r-xp 00000000 08:01 12 /bin/cat\n")
	m.run(4, "b", driver)
	m.run(5, "other", driver)
	if found, err := m.search(nil); err != nil || !slices.Equal(found, []int{2, 4}) {
		t.Errorf("found %v, %v", found, err)
	}
}

// Whoever is in none of the containers may have a memory map of any length: it is not opened.
func TestMapsOfOthersAreNotRead(t *testing.T) {
	m := newMachine(t)
	path := m.run(1, "other", "")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	opened := make(chan bool, 1)
	go func() {
		w, err := os.OpenFile(path, os.O_WRONLY, 0) // returns once somebody reads
		opened <- err == nil
		_ = w.Close()
	}()
	if _, err := m.search(nil); err != nil {
		t.Fatal(err)
	}
	select {
	case <-opened:
		t.Error("the memory map of a process in another container was read")
	default:
		r, err := os.OpenFile(path, os.O_RDWR, 0) // lets the writer go
		if err != nil {
			t.Fatal(err)
		}
		<-opened
		_ = r.Close()
	}
}

// A memory map of 1 GB costs a few kilobytes, and who has it counts as one that may have
// loaded the driver.
func TestLargeMap(t *testing.T) {
	m := newMachine(t)
	path := m.run(2, "a", "")
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	w := bufio.NewWriter(file)
	for range 64 << 10 {
		_, _ = w.WriteString("55a0-55b0 r-xp 00000000 08:01 12 /" + strings.Repeat("x", 500) + "\n")
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := file.Truncate(1 << 30); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	found, err := m.search(nil)
	runtime.ReadMemStats(&after)
	if err != nil || !slices.Equal(found, []int{2}) {
		t.Errorf("found %v, %v", found, err)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 {
		t.Errorf("took %d bytes of memory", got)
	}
}

// The processes of one container take none of the time of another's, and that some were not looked at is told.
func TestTimeOfOneContainer(t *testing.T) {
	m := newMachine(t)
	for pid := 1; pid <= 9; pid++ {
		m.run(pid, "a", "")
	}
	m.run(99, "b", driver)
	var at time.Time
	slow := func() time.Time { at = at.Add(500 * time.Millisecond); return at }
	found, err := m.search(slow)
	if !slices.Equal(found, []int{99}) || err == nil || !strings.Contains(err.Error(), "5 processes") {
		t.Errorf("found %v, %v", found, err)
	}
}
