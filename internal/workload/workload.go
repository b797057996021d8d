// Package workload builds the CUDA program that tests, demo and experiments run
// in their containers: a matrix multiplication by the driver API that prints the
// time line of its phases. The same binary runs on real GPUs and on the
// simulated one. src/matmul.c says what it does.
package workload

import (
	"context"
	_ "embed"

	"github.com/laxity/laxity/internal/cc"
)

//go:embed src/matmul.c
var source []byte

// Build compiles the program into a folder below dir (an empty dir is the user's
// cache) and returns its path. One that was built before is used again. It needs
// gcc, and no CUDA toolkit.
func Build(dir string) (path string, err error) {
	if dir == "" {
		dir = cc.CacheDir()
	}
	return cc.Build(context.Background(), dir, cc.Target{
		Name:   "matmul",
		Source: source,
		Flags:  []string{"-pthread", "-ldl", "-lm"},
	})
}
