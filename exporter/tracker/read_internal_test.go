package tracker

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"testing"
)

func TestSwapped(t *testing.T) {
	unread := fmt.Errorf("notice of a swap: %w", &fs.PathError{Op: "open", Path: "a.json", Err: errors.New("too many open files")})
	type set = map[int]string
	for name, c := range map[string]struct {
		before, now, count, remember set
		err                          error
	}{
		"nobody":                            {nil, nil, set{}, nil, nil},
		"one goes, one comes back":          {set{1: "a"}, set{2: "b"}, set{1: "a", 2: "b"}, set{2: "b"}, nil},
		"another container has the PID now": {set{1: "a"}, set{1: "b"}, set{1: "b"}, set{1: "b"}, nil},
		"a file is not read":                {set{1: "a"}, set{2: "b"}, set{1: "a", 2: "b"}, set{1: "a", 2: "b"}, unread},
		"a notice makes no sense":           {set{1: "a"}, set{2: "b"}, set{1: "a", 2: "b"}, set{2: "b"}, errors.New("it names no container")},
	} {
		count, remember := swapped(c.before, c.now, c.err)
		if !maps.Equal(count, c.count) || !maps.Equal(remember, c.remember) {
			t.Errorf("%s: count %v, remember %v; want %v and %v", name, count, remember, c.count, c.remember)
		}
	}
}
