package proc

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/laxity/laxity/internal/memorymap"
)

// Members returns the processes of containers. of returns the container of a process; false if it is in none
// that is searched. proc is where the host's proc file system is mounted.
func Members[C comparable](proc string, of func(pid int) (C, bool)) (map[C][]int, error) {
	names, err := filepath.Glob(filepath.Join(proc, "[0-9]*"))
	if err != nil {
		return nil, err
	}
	all := map[C][]int{}
	for _, name := range names {
		pid, err := strconv.Atoi(filepath.Base(name))
		if err != nil {
			continue
		}
		if c, ok := of(pid); ok {
			all[c] = append(all[c], pid)
		}
	}
	return all, nil
}

// Search is a search for the processes of one container that have loaded the driver.
type Search struct {
	Proc string // where the host's proc file system is mounted
	// Time bounds how long the memory maps are read; 2 s if zero.
	Time time.Duration
	// Now is the clock; time.Now if nil.
	Now func() time.Time
}

// Loaded calls each for every process that has loaded a library with the name of the driver. It
// reads their memory maps, none further than memorymap.Default. A process with a longer map may have
// loaded the driver, and counts as if it had. The error says how many maps were left unread when the time was
// over. A map cannot be read while its process waits in mmap for a file system that hangs: then Loaded hangs too.
func (s Search) Loaded(pids []int, each func(pid int)) error {
	if s.Time == 0 {
		s.Time = 2 * time.Second
	}
	if s.Now == nil {
		s.Now = time.Now
	}
	var spent time.Duration
	for i, pid := range pids {
		if spent >= s.Time {
			return fmt.Errorf("a container's processes have memory maps that take more than %v to read: %d processes were not inspected", s.Time, len(pids)-i)
		}
		began := s.Now()
		found := mapsDriver(filepath.Join(s.Proc, strconv.Itoa(pid), "maps"))
		spent += s.Now().Sub(began)
		if found {
			each(pid)
		}
	}
	return nil
}

func mapsDriver(maps string) (found bool) {
	err := memorymap.Default.Search(maps, "/libcuda.so", func([]byte) bool { found = true; return false })
	return found || errors.Is(err, memorymap.ErrTooLarge)
}
