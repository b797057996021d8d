package priority

import (
	"os"
	"runtime"
)

// maxCores is enough for a daemon that does one thing at a time, beside a reading that
// is in the driver and an answer to a scrape.
const maxCores = 3

// FewCores bounds how many cores run this program's Go code at once. Go would use all
// of them for each collection of garbage, so that for some milliseconds a tenant's
// thread that wakes up finds none idle. GOMAXPROCS in the environment wins.
func FewCores() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(min(maxCores, runtime.GOMAXPROCS(0)))
	}
}
