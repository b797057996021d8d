package timeline

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// binWidth is the part of the line, percent, in which tasks too short to be told apart are one bar;
// gapWidth is free between two such bars.
const (
	binWidth = 2 * leastWidth
	gapWidth = 0.08
)

// IsShort reports whether an ended task would be narrower than the narrowest bar.
func (w Window) IsShort(e Entry) bool {
	return e.End != nil && w.X(w.end(e))-w.X(e.Start.Time) < leastWidth
}

// merge makes one bar of the short tasks that began about the same time: the requests of a server
// would be a tower of bars that nobody can read. The bars keep their places while time goes on.
func (l *Lane) merge(w Window) {
	length := time.Duration(float64(w.To.Sub(w.From)) * binWidth / 100)
	bins := map[int64][]Entry{}
	several := false
	for _, b := range l.Bars {
		if w.IsShort(b.Task) && length > 0 {
			i := b.Task.Start.Time.UnixNano() / int64(length)
			bins[i] = append(bins[i], b.Task)
			several = several || len(bins[i]) > 1
		}
	}
	if !several {
		return
	}
	l.Bars = slices.DeleteFunc(l.Bars, func(b Bar) bool { return w.IsShort(b.Task) })
	for _, i := range slices.Sorted(maps.Keys(bins)) {
		from := time.Unix(0, i*int64(length))
		least := slices.MinFunc(bins[i], func(a, b Entry) int { return cmp.Compare(a.Float(w.Now), b.Float(w.Now)) })
		b := Bar{Range: w.clip(from, from.Add(length)), Task: least, Short: bins[i], Cut: from.Before(w.From)}
		b.W = max(b.W-gapWidth, 0.05)
		b.X = min(b.X, 100-b.W)
		b.Segments = []Segment{{b.Range, least.State}}
		l.Bars = append(l.Bars, b)
	}
	l.Rows = 2 // one for the request that runs: the lane does not grow and shrink with each
}
