package estimate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
)

// Changed reports whether anything changed since Written was last called.
func (b *Book) Changed() bool { return b.changed }

// Written says that what Encode returned is on disk.
func (b *Book) Written() { b.changed = false }

// Encode returns what Decode reads: the histories, the oldest first.
func (b *Book) Encode() ([]byte, error) {
	all := b.histories()
	slices.SortFunc(all, func(x, y *history) int { return cmp.Compare(x.Last, y.Last) })
	return json.Marshal(all)
}

// Decode makes a book of what Encode returned. It drops implausible entries, and returns an error
// for what is no JSON.
func Decode(raw []byte) (*Book, error) {
	b := New()
	var all []*history
	if err := json.Unmarshal(raw, &all); err != nil {
		return b, fmt.Errorf("the history of tasks cannot be read: %w", err)
	}
	for _, h := range all[max(0, len(all)-maxKinds):] {
		if h == nil {
			continue
		}
		h.Runs = slices.DeleteFunc(h.Runs[max(0, len(h.Runs)-maxRuns):], func(r run) bool {
			return !(r.Seconds >= 0) || math.IsInf(r.Seconds, 0) || !(r.Use <= 1) || !(r.Mean <= 1) || !(r.Waited >= 0 && r.Waited <= r.Seconds) || !(r.Most >= 0 && r.Most <= 1)
		})
		h.Every = slices.DeleteFunc(h.Every[max(0, len(h.Every)-maxRuns):], func(s float64) bool { return !(s >= 0) || math.IsInf(s, 0) })
		b.clock = max(b.clock, h.Last)
		b.kinds[h.Kind] = h
	}
	return b, nil
}
