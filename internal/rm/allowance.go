package rm

import "time"

const (
	// chunk is how many handles are asked for over one duplicate: some 1.5 ms.
	chunk = 512
	// saved is how many handles may be asked for at once after a rest: some 50 ms.
	saved = 32 * chunk
	// fresh is how far below the counter a handle counts as new.
	fresh = 2 * chunk
	// kept is how many of those saved are for new handles alone, so that who has just made its
	// client does not wait for others' searches.
	kept = saved / 2
)

// allowance bounds the client handles that all searches of a Manager ask for together: each
// takes the resource manager's API lock, if only for reading.
type allowance struct {
	rate int // a second
	left float64
	at   time.Duration
}

// take returns how many of want handles may be asked for now, and counts them as asked.
func (a *allowance) take(now time.Duration, want int, old bool) int {
	a.left = min(saved, a.left+max(0, (now-a.at).Seconds())*float64(a.rate))
	a.at = max(a.at, now)
	left := int(a.left)
	if old {
		left -= kept
	}
	n := max(0, min(want, left))
	a.left -= float64(n)
	return n
}
