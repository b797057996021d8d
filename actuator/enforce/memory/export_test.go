package memory

import "time"

// SetUsageLimit is how long one reading of the usage may take.
func (g *Guard) SetUsageLimit(d time.Duration) { g.usageLimit.Store(int64(d)) }

// SetFileLimit is how long files may be read before that is told.
func (g *Guard) SetFileLimit(d time.Duration) { g.fileLimit.Store(int64(d)) }

// Gone is gone.
var Gone = gone

// Missed says why a process could not be looked at; empty if it could.
func (g *Guard) Missed(pid int) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if m := g.missed[pid]; m != nil {
		return m.why
	}
	return ""
}
