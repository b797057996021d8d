package proc

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/laxity/laxity/internal/memorymap"
)

// Search is a search for the processes of containers that have loaded the driver.
type Search[C comparable] struct {
	Proc string // where the host's proc file system is mounted
	// Of returns the container of a process; false if it is in none that is searched.
	Of func(pid int) (C, bool)
	// Time bounds how long the memory maps of one container are read; 2 s if zero.
	Time time.Duration
	// Now is the clock; time.Now if nil.
	Now func() time.Time
}

// Loaded calls each for every process that has loaded a library with the name of the driver. It
// reads memory maps of processes in the containers only, none further than memorymap.Default. A
// process with a longer map may have loaded the driver, and counts as if it had. The error says how
// many maps were left unread when a container's time was over.
func (s Search[C]) Loaded(each func(pid int, of C)) error {
	if s.Time == 0 {
		s.Time = 2 * time.Second
	}
	if s.Now == nil {
		s.Now = time.Now
	}
	names, err := filepath.Glob(filepath.Join(s.Proc, "[0-9]*"))
	if err != nil {
		return err
	}
	spent, left := map[C]time.Duration{}, 0
	for _, name := range names {
		pid, err := strconv.Atoi(filepath.Base(name))
		if err != nil {
			continue
		}
		of, ok := s.Of(pid)
		switch {
		case !ok:
			continue
		case spent[of] >= s.Time:
			left++
			continue
		}
		began := s.Now()
		found := mapsDriver(filepath.Join(name, "maps"))
		spent[of] += s.Now().Sub(began)
		if found {
			each(pid, of)
		}
	}
	if left > 0 {
		return fmt.Errorf("a container's processes have memory maps that take more than %v to read: %d processes were not inspected", s.Time, left)
	}
	return nil
}

func mapsDriver(maps string) (found bool) {
	err := memorymap.Default.Search(maps, "/libcuda.so", func([]byte) bool { found = true; return false })
	return found || errors.Is(err, memorymap.ErrTooLarge)
}
