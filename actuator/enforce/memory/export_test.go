package memory

import "time"

// SetUsageLimit is how long one reading of the usage may take.
func (g *Guard) SetUsageLimit(d time.Duration) { g.usageLimit.Store(int64(d)) }

// SetFileLimit is how long files may be read before that is told.
func (g *Guard) SetFileLimit(d time.Duration) { g.fileLimit.Store(int64(d)) }
