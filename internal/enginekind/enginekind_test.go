package enginekind

import (
	"errors"
	"fmt"
	"testing"

	"github.com/containerd/errdefs"
)

func TestGone(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{fmt.Errorf("no container c: %w", errdefs.ErrNotFound), true},
		{errors.New("container c does not exist in database: no such container"), true},
		{errors.New("Container c: container has already been removed"), true},
		{errors.New("Container c is not paused"), false},
	} {
		if got := Gone(c.err); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}
