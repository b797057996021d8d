package memorymap

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

const (
	cat    = "55a0-55b0 r-xp 00000000 08:01 12                /bin/cat\n"
	driver = "7f00-7f10 r-xp 00000000 08:01 34                /usr/lib/libcuda.so.1\n"
)

func TestSearch(t *testing.T) {
	long := "55b0-55c0 r-xp 00000000 08:01 12 /" + strings.Repeat("libcuda.so/", 1<<14) + "\n"
	for name, tt := range map[string]struct {
		text  string
		limit Limits
		want  int
		err   error
	}{
		"all":                            {cat + driver + cat + driver, Default, 2, nil},
		"empty":                          {"", Default, 0, nil},
		"no line feed at the end":        {cat + strings.TrimSpace(driver), Default, 1, nil},
		"a long line hides nothing":      {long + driver + long, Default, 1, nil},
		"at the limit of lines":          {cat + driver, Limits{Bytes: 1 << 20, Lines: 2, Time: time.Hour}, 1, nil},
		"beyond the limit of lines":      {driver + cat + driver, Limits{Bytes: 1 << 20, Lines: 2, Time: time.Hour}, 1, ErrTooLarge},
		"at the limit of bytes":          {driver, Limits{Bytes: int64(len(driver)), Lines: 9, Time: time.Hour}, 1, nil},
		"beyond the limit of bytes":      {cat + driver, Limits{Bytes: int64(len(cat)), Lines: 9, Time: time.Hour}, 0, ErrTooLarge},
		"a line beyond the limit, alone": {long, Limits{Bytes: 1 << 10, Lines: 9, Time: time.Hour}, 0, ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "maps")
			if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			got := 0
			err := tt.limit.Search(path, "/libcuda.so.1", func(line []byte) bool {
				if string(line) != strings.TrimSpace(driver) {
					t.Errorf("line %q", line)
				}
				got++
				return true
			})
			if got != tt.want || !errors.Is(err, tt.err) {
				t.Errorf("%d lines and %v, want %d and %v", got, err, tt.want, tt.err)
			}
		})
	}
}

func TestSearchEndsWhenAsked(t *testing.T) {
	asked := 0
	err := Default.read(strings.NewReader(driver+driver), "maps", []byte("libcuda"), func([]byte) bool { asked++; return false })
	if asked != 1 || err != nil {
		t.Errorf("asked %d times, %v", asked, err)
	}
}

func TestSearchEndsInTime(t *testing.T) {
	now := time.Unix(0, 0)
	l := Limits{Bytes: 1 << 40, Lines: 1 << 40, Time: time.Second, Now: func() time.Time {
		now = now.Add(100 * time.Millisecond) // each look at the clock
		return now
	}}
	if err := l.read(endless(cat), "maps", []byte("libcuda"), nil); !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v", err)
	}
}

// Without the limits this would read for ever, and a reader of the whole would take all memory.
func TestSearchOfAnEndlessMap(t *testing.T) {
	for name, line := range map[string]string{"lines": cat, "one line": strings.TrimSpace(cat)} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := Default.read(endless(line), "maps", []byte("libcuda"), nil); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: got %v", name, err)
		}
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 {
			t.Errorf("%s: took %d bytes of memory", name, got)
		}
	}
}

func TestSearchOfOurOwn(t *testing.T) {
	found := false
	if err := Default.Search("/proc/self/maps", "[stack]", func([]byte) bool { found = true; return false }); err != nil || !found {
		t.Errorf("found %v, %v", found, err)
	}
	if err := Default.Search("/proc/0/maps", "", nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

type repeat struct {
	line string
	at   int
}

func endless(line string) io.Reader { return &repeat{line: line} }

func (r *repeat) Read(b []byte) (n int, err error) {
	for n < len(b) {
		c := copy(b[n:], r.line[r.at:])
		n, r.at = n+c, (r.at+c)%len(r.line)
	}
	return n, nil
}

func FuzzSearch(f *testing.F) {
	for _, seed := range []string{"", "\n", driver, cat + driver, strings.Repeat("x", 2*maxLine) + "\n" + driver, "\x00\n\xff", strings.TrimSpace(driver)} {
		f.Add([]byte(seed), uint16(1<<15), uint16(100))
	}
	f.Fuzz(func(t *testing.T, data []byte, size, lines uint16) {
		l, n := Limits{Bytes: int64(size), Lines: int(lines), Time: time.Hour}, 0
		err := l.read(bytes.NewReader(data), "maps", []byte("/libcuda.so"), func(line []byte) bool {
			if n++; len(line) > maxLine || bytes.IndexByte(line, '\n') >= 0 || !bytes.Contains(line, []byte("/libcuda.so")) {
				t.Errorf("line %q", line)
			}
			return true
		})
		if n > l.Lines || err == nil && len(data) > int(l.Bytes) {
			t.Errorf("%d lines of %d bytes, %v", n, len(data), err)
		}
	})
}
