package cudaprobe

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/laxity/laxity/internal/cache"
	"github.com/laxity/laxity/internal/cudaprobe/cudafile"
	"github.com/laxity/laxity/internal/cudaprobe/cudatest"
)

// A tenant can map ever new copies of the driver, or have one and touch it.
func TestGuardRemembersFewFiles(t *testing.T) {
	library, err := os.ReadFile(cudatest.Build(t).Library)
	if err != nil {
		t.Fatal(err)
	}
	const pid = 7
	root, proc := t.TempDir(), t.TempDir()
	file := filepath.Join(root, "libcuda.so.1")
	process := filepath.Join(proc, "7")
	for _, err := range []error{
		os.WriteFile(file, library, 0o600),
		os.Mkdir(process, 0o700),
		os.WriteFile(filepath.Join(process, "maps"), []byte("7f00-7f10 r-xp 00000000 08:01 12 /libcuda.so.1\n"), 0o600),
		os.Symlink(root, filepath.Join(process, "root")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	g := &MemoryGuard{finder: cudafile.Finder{Proc: proc}}
	const files = 2 * cache.Most
	for i := range int64(files) {
		if err := os.Chtimes(file, time.Time{}, time.Unix(i, 0)); err != nil {
			t.Fatal(err)
		}
		drivers, err := g.open(pid)
		if err != nil || len(drivers) != 1 || len(drivers[0].functions) == 0 {
			t.Fatal(drivers, err)
		}
		_ = drivers[0].file.Close()
	}
	if n := g.functions.Len(); n == 0 || n > cache.Most {
		t.Errorf("the functions of %d files are remembered", n)
	}
}
