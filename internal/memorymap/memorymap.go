// Package memorymap reads the memory map of a process, /proc/PID/maps.
//
// The owner of the process decides how long that file is: a million mappings, each with a path of
// many kilobytes, need no rights at all. So it is read as a stream, line by line, and no further
// than Limits.
//
// It imports the standard library only.
package memorymap

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// ErrTooLarge means that a map is longer than Limits, and that the rest was not read.
var ErrTooLarge = errors.New("memory map too large")

// maxLine is the longest line, bytes; longer ones are skipped. PATH_MAX is 4096, and the kernel
// writes some bytes of a path as four.
const maxLine = 4*4096 + 128

// every is how many lines are read between two readings of the clock.
const every = 64

// Limits bound what is read of one map.
type Limits struct {
	Bytes int64
	Lines int
	Time  time.Duration
	// Now is the clock; time.Now if nil.
	Now func() time.Time
}

// Default suffices for programs with 65,530 mappings, the most that the kernel allows unless
// vm.max_map_count is raised. They take a tenth of a second.
var Default = Limits{Bytes: 16 << 20, Lines: 1 << 17, Time: 2 * time.Second}

// Search passes each line of the map at path that contains text to each, without its line feed,
// until each returns false. The line is valid during the call only. The error wraps ErrTooLarge if
// the map is longer than the limits; each got the lines before.
func (l Limits) Search(path, text string, each func(line []byte) (more bool)) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return l.read(file, path, []byte(text), each)
}

func (l Limits) read(from io.Reader, path string, text []byte, each func(line []byte) bool) error {
	now := l.Now
	if now == nil {
		now = time.Now
	}
	began := now()
	bounded := &io.LimitedReader{R: from, N: l.Bytes + 1} // one more byte, to tell the end from the limit
	lines := bufio.NewReaderSize(bounded, maxLine)
	for n := 0; ; n++ {
		line, err := lines.ReadSlice('\n')
		whole := true
		for errors.Is(err, bufio.ErrBufferFull) {
			whole = false
			_, err = lines.ReadSlice('\n')
		}
		ended := errors.Is(err, io.EOF)
		switch {
		case bounded.N <= 0:
			return fmt.Errorf("%s: %w: more than %d bytes", path, ErrTooLarge, l.Bytes)
		case err != nil && !ended:
			return err
		case n >= l.Lines && (!ended || len(line) > 0):
			return fmt.Errorf("%s: %w: more than %d lines", path, ErrTooLarge, l.Lines)
		case n%every == 0 && now().Sub(began) > l.Time:
			return fmt.Errorf("%s: %w: more than %v of reading", path, ErrTooLarge, l.Time)
		}
		if whole && bytes.Contains(line, text) && !each(bytes.TrimSuffix(line, []byte("\n"))) || ended {
			return nil
		}
	}
}
