// Package pause builds the program of an image that keeps a pod together, for experiments and tests.
//
// Of ours it imports internal/cc.
package pause

import (
	"context"

	"github.com/laxity/laxity/internal/cc"
)

// It is PID 1, so that it must not rely on default signals.
const source = `#include <signal.h>
#include <unistd.h>
static void end(int s) { (void)s; _exit(0); }
int main(void) { signal(SIGTERM, end); signal(SIGINT, end); for (;;) pause(); }
`

// Build returns the path of a static program that runs until it gets SIGTERM. It needs a C compiler,
// and compiles it once for each version.
func Build(ctx context.Context) (string, error) {
	return cc.Build(ctx, cc.CacheDir(), cc.Target{Name: "laxity-pause", Source: []byte(source), Flags: []string{"-O2", "-static"}})
}
