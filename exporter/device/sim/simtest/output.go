package simtest

import (
	"errors"
	"io"

	"github.com/docker/docker/pkg/stdcopy"
)

// copyAll copies a container's standard output to w: first what an engine sends while it is written,
// then what it left out. Docker before version 23 ends a followed log as soon as it knows that the
// container has ended, at times before it has sent the last lines. whole is the log once more, from
// its begin.
func copyAll(w io.Writer, followed io.Reader, whole func() (io.ReadCloser, error)) error {
	sent := &counter{w: w}
	_, cut := stdcopy.StdCopy(sent, io.Discard, followed)
	all, err := whole()
	if err != nil {
		return errors.Join(cut, err)
	}
	defer all.Close()
	_, err = stdcopy.StdCopy(&rest{w: w, skip: sent.n}, io.Discard, all)
	return err
}

// counter counts what it passes on.
type counter struct {
	w io.Writer
	n int
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += n
	return n, err
}

// rest passes on what comes after the first bytes.
type rest struct {
	w    io.Writer
	skip int
}

func (r *rest) Write(b []byte) (int, error) {
	skipped := min(r.skip, len(b))
	r.skip -= skipped
	if skipped == len(b) {
		return skipped, nil
	}
	n, err := r.w.Write(b[skipped:])
	return skipped + n, err
}
