package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/internal/needtest"
)

// pty is a terminal: what programs write to it, and what a person types.
type pty struct {
	*testing.T
	program *os.File // the program's end
	keys    *os.File // the person's end

	mu    sync.Mutex
	text  strings.Builder
	wrote chan struct{} // closed by the next output
}

// terminal returns a terminal of this size.
func terminal(t *testing.T, width, height uint16) *pty {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		needtest.Terminal.Skip(t, "no terminals here:", err)
	}
	number, err := unix.IoctlGetInt(int(keys.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(keys.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(int(keys.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: height, Col: width})
	}
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close(); keys.Close() })
	s := &pty{T: t, program: program, keys: keys, wrote: make(chan struct{})}
	go func() {
		buffer := make([]byte, 1<<16)
		for {
			n, err := keys.Read(buffer)
			if err != nil {
				return
			}
			s.mu.Lock()
			s.text.Write(buffer[:n])
			close(s.wrote)
			s.wrote = make(chan struct{})
			s.mu.Unlock()
		}
	}()
	return s
}

// await returns what was written since the byte from, once the text is in it, and where it
// ends.
func (s *pty) await(from int, text string) (string, int) {
	s.Helper()
	for end := time.After(60 * time.Second); ; {
		s.mu.Lock()
		all, more := s.text.String(), s.wrote
		s.mu.Unlock()
		if strings.Contains(all[from:], text) {
			return all[from:], len(all)
		}
		select {
		case <-more:
		case <-end:
			s.Fatalf("%q is not shown:\n%s", text, all[from:])
		}
	}
}

// press types keys.
func (s *pty) press(keys string) {
	s.Helper()
	if _, err := s.keys.WriteString(keys); err != nil {
		s.Fatal(err)
	}
}
