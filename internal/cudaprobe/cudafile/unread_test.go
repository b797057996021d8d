package cudafile

import (
	"errors"
	"io"
	"os"
	"syscall"
	"testing"
)

// failing is a file whose reads fail from a byte on.
type failing struct {
	io.ReaderAt
	from int64
}

func (f failing) ReadAt(b []byte, at int64) (int, error) {
	if at+int64(len(b)) > f.from {
		return 0, &os.PathError{Op: "read", Path: "libcuda.so.1", Err: syscall.ESTALE}
	}
	return f.ReaderAt.ReadAt(b, at)
}

// A file that cannot be read now may be the driver all the same, whatever part of it is missing.
func TestFileThatCannotBeRead(t *testing.T) {
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	stat, err := self.Stat()
	if err != nil {
		t.Fatal(err)
	}
	for _, from := range []int64{0, 32, 64, stat.Size() / 2, stat.Size() - 64} {
		if _, err := readFunctions(failing{self, from}, 1<<20); !errors.Is(err, syscall.ESTALE) || errors.Is(err, ErrNotDriver) {
			t.Errorf("unreadable from byte %d on: %v", from, err)
		}
	}
}
