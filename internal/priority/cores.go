package priority

import (
	"os"
	"runtime"
)

// maxCores suffices for a daemon that does one thing at a time, beside one reading in the driver
// and one answer to a scrape.
const maxCores = 3

// FewCores bounds how many cores run this program's Go code at once. Go would use all of them for
// each garbage collection: a tenant's thread that wakes up would find no idle core for some
// milliseconds. GOMAXPROCS in the environment wins.
func FewCores() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(min(maxCores, runtime.GOMAXPROCS(0)))
	}
}
