package cudafile_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"syscall"
	"testing"

	"github.com/laxity/laxity/internal/cudaprobe/cudafile"
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
	const names = "\x00cuInit\x00"
	good := forged(names, 1)
	size := int64(len(good))
	table := size - int64(len(names)) // of names; that of symbols is before it
	for _, from := range []int64{0, 32, 64, sectionsAt, sectionsAt + 64, table - 1, table, size - 1} {
		if _, err := cudafile.ReadFunctions(failing{bytes.NewReader(good), from}, size); !errors.Is(err, syscall.ESTALE) || errors.Is(err, cudafile.ErrNotDriver) {
			t.Errorf("unreadable from byte %d on: %v", from, err)
		}
	}
	if _, err := cudafile.ReadFunctions(failing{bytes.NewReader(good), size}, size); err != nil {
		t.Errorf("readable: %v", err)
	}
}
