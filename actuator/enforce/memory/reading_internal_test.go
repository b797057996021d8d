package memory

import (
	"slices"
	"testing"
)

// Who may be about to allocate without probes gets them first; else the first is the first.
func TestWhoGetsProbesFirst(t *testing.T) {
	c := &container{processes: map[int]*process{
		1: {pid: 1, due: 1},
		2: {pid: 2, due: 2, guarded: true, starts: true},
		3: {pid: 3, due: 3},
		4: {pid: 4},
		5: {pid: 5, due: 5, starts: true},
		6: {pid: 6, due: 4, guarded: true},
		7: {pid: 7, due: 6, starts: true},
	}}
	var got []int
	for p := c.first(); p != nil; p = c.first() {
		got = append(got, p.pid)
		p.due = 0
	}
	if want := []int{5, 7, 1, 3, 2, 6}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
