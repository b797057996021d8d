package rm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
)

// folder is a folder with many names.
type folder struct {
	has, read int
	onRead    func()
}

func (f *folder) Readdirnames(n int) (names []string, err error) {
	if f.onRead != nil {
		f.onRead()
	}
	for ; len(names) < n && f.read < f.has; f.read++ {
		names = append(names, fmt.Sprint(f.read))
	}
	if len(names) == 0 {
		return nil, io.EOF
	}
	return names, nil
}

func TestDescriptorsAreReadUpToABound(t *testing.T) {
	f := &folder{has: 1 << 17}
	if names, err := readNames(t.Context(), f); !errors.Is(err, ErrUnsupported) || len(names) > 0 {
		t.Errorf("%d names, %v", len(names), err)
	}
	if f.read > maxDescriptors+1024 {
		t.Errorf("%d of %d names were read", f.read, f.has)
	}
	for _, n := range []int{0, 1, 5000, maxDescriptors} { // a training program has some thousands
		if names, err := readNames(t.Context(), &folder{has: n}); err != nil || len(names) != n {
			t.Errorf("%d of %d names, %v", len(names), n, err)
		}
	}
}

func TestReadingDescriptorsEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	f := &folder{has: maxDescriptors}
	f.onRead = func() {
		if f.read > 5000 {
			cancel()
		}
	}
	if _, err := readNames(ctx, f); !errors.Is(err, context.Canceled) || f.read > 10_000 {
		t.Errorf("%d names were read: %v", f.read, err)
	}
	if _, err := (&system{}).Descriptors(ctx, os.Getpid()); !errors.Is(err, context.Canceled) {
		t.Errorf("the descriptors of a process, with a context that has ended: %v", err)
	}
}
