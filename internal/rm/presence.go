package rm

import "time"

const (
	// computeSlice is the slice that libcuda gives a compute group, and so the time after which the GPU
	// goes over to the next one that waits.
	computeSlice = 2048 * time.Microsecond
	// saveMost is the longest time that saving a context's state was taken for. The trace counts it
	// as the context's: 0.12 ms on an H100.
	saveMost = 400 * time.Microsecond
)

// Presence returns how long a context of each process was on a GPU, in a window of that length in which
// these switches came. It returns nil if it does not know: nothing has switched, or the driver does not
// say whose contexts they are.
//
// A context stays on the GPU until another one wants it. So presence is how long a process computed
// where others waited for the GPU, and at most how long where nobody did. Time in which a context that
// has used its slice is saved is nobody's.
//
// The GPU's clock and ours are not compared: what the window has beside the time from the first switch to
// the last is taken to lie half before and half after them. Not every end is recorded (a decode loop that was alone
// on an H100, until another's channels were switched on): if the first switch is a start, another process whose end
// is missing is taken to have been there before, or the only other one.
func Presence(switches []Switch, window time.Duration) map[int]time.Duration {
	if len(switches) == 0 {
		return nil
	}
	first, last := switches[0], switches[len(switches)-1]
	parts := map[int]time.Duration{}
	edge := max(0, window-time.Duration(last.At-first.At)) / 2
	parts[before(switches)] += edge
	for i, s := range switches {
		if !s.On {
			continue
		}
		if s.PID == 0 {
			return nil
		}
		if i == len(switches)-1 {
			parts[s.PID] += edge
			break
		}
		// The next one is its end, or the start of another whose end is missing.
		d := time.Duration(max(switches[i+1].At, s.At) - s.At)
		if d > computeSlice && d < computeSlice+saveMost {
			d = computeSlice
		}
		parts[s.PID] += d
	}
	delete(parts, 0) // one that the driver does not name
	return parts
}

// before returns whose context was on the GPU before the first of these switches; 0: not known.
func before(switches []Switch) int {
	first := switches[0]
	if !first.On {
		return first.PID
	}
	only, several := 0, false
	for i, s := range switches {
		if !s.On || s.PID == first.PID {
			continue
		}
		if i == len(switches)-1 || switches[i+1].On { // it is there still, or its end is missing
			return s.PID
		}
		several = several || only != 0 && s.PID != only
		only = s.PID
	}
	if several {
		return 0
	}
	return only
}
