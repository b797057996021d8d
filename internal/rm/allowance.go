package rm

import "time"

const (
	// chunk is how many handles one duplicate is used for: some 1.5 ms.
	chunk = 512
	// saved is how many handles may be tried at once after a pause: some 50 ms.
	saved = 32 * chunk
	// fresh is how far below the counter a handle still counts as new.
	fresh = 2 * chunk
	// kept is the part of saved that is for new handles only, so that a process that has just made
	// its client does not wait for other searches.
	kept = saved / 2
)

// allowance bounds the client handles that all searches of a Manager try together: each try takes
// the resource manager's API lock, if only for reading.
type allowance struct {
	rate int // a second
	left float64
	at   time.Duration
}

// take returns how many of want handles may be tried now, and books them.
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
