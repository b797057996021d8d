package simtest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/docker/docker/pkg/stdcopy"
)

// An engine may cut a followed log anywhere.
func TestOutputIsWholeWhereverTheEngineCutsIt(t *testing.T) {
	var log bytes.Buffer
	stdout, stderr := stdcopy.NewStdWriter(&log, stdcopy.Stdout), stdcopy.NewStdWriter(&log, stdcopy.Stderr)
	want := ""
	for i := range 4 {
		line := fmt.Sprintf("line %d\n", i)
		want += line
		_, _ = io.WriteString(stdout, line)
		_, _ = io.WriteString(stderr, "not this\n")
	}
	whole := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(log.Bytes())), nil }
	for cut := range log.Len() + 1 {
		var got bytes.Buffer
		if err := copyAll(&got, bytes.NewReader(log.Bytes()[:cut]), whole); err != nil || got.String() != want {
			t.Errorf("cut after %d of %d bytes: %q, %v", cut, log.Len(), got.String(), err)
		}
	}
}

// A container that is removed while it is followed has no log any more.
func TestOutputOfARemovedContainerIsWhatWasFollowed(t *testing.T) {
	var log, got bytes.Buffer
	_, _ = io.WriteString(stdcopy.NewStdWriter(&log, stdcopy.Stdout), "line\n")
	removed := errors.New("no such container")
	err := copyAll(&got, &log, func() (io.ReadCloser, error) { return nil, removed })
	if !errors.Is(err, removed) || got.String() != "line\n" {
		t.Errorf("%q, %v", got.String(), err)
	}
}
