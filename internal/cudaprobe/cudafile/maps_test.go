package cudafile_test

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/laxity/laxity/internal/cudaprobe/cudafile"
	"github.com/laxity/laxity/internal/memorymap"
)

// A tenant makes its memory map as long as it likes: its files are found all the same where
// it can come to load them, and the memory that we take is bounded.
func TestLargeMap(t *testing.T) {
	root := t.TempDir()
	put(t, root+"/usr/lib64/libcuda.so.1", []byte("x"))
	proc := fakeProc(t, root, nil)
	line := "55a0-55b0 r-xp 00000000 08:01 12 /opt/" + strings.Repeat("x", 4000) + "\n"
	put(t, proc+"/7/maps", []byte(strings.Repeat(line, 1000)))
	if err := os.Truncate(proc+"/7/maps", 1<<30); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	files, err := cudafile.Finder{Proc: proc}.Mapped(7)
	runtime.ReadMemStats(&after)
	if len(files) != 0 || !errors.Is(err, memorymap.ErrTooLarge) {
		t.Errorf("found %v, %v", paths(files), err)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 {
		t.Errorf("took %d bytes of memory", got)
	}
	files, err = cudafile.Finder{Proc: proc}.Container(7)
	defer cudafile.CloseAll(files)
	if err != nil || len(files) != 1 {
		t.Errorf("found %v, %v", paths(files), err)
	}
}
