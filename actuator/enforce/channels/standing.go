package channels

import (
	"fmt"
	"time"
)

// sliceOn returns the slice on a GPU; 0 means the group's own.
func (s Standing) sliceOn(gpu string) time.Duration {
	d, ok := s.Slices[gpu]
	if !ok {
		d = s.Slice
	}
	return d.Truncate(time.Microsecond)
}

// sliced reports whether the standing asks for a slice on any GPU.
func (s Standing) sliced() bool {
	for _, d := range s.Slices {
		if d != 0 {
			return true
		}
	}
	return s.Slice != 0
}

func (s Standing) checkSlices() error {
	check := func(d time.Duration) error {
		if d != 0 && (d < MinSlice || d > MaxSlice) {
			return fmt.Errorf("a slice of %v: it must be %v to %v", d, MinSlice, MaxSlice)
		}
		return nil
	}
	for _, d := range s.Slices {
		if err := check(d); err != nil {
			return err
		}
	}
	return check(s.Slice)
}
