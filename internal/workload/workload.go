// Package workload builds the CUDA program that tests, demo and experiments run in their
// containers: a matrix multiplication by the driver API that prints the time line of its phases.
// The same binary runs on real GPUs and on the simulated one; src/matmul.c documents it. A second
// program is for several simulated GPUs.
package workload

import (
	"context"
	"embed"
	"io/fs"

	"github.com/laxity/laxity/internal/cc"
)

//go:embed src/matmul.c
var source []byte

//go:embed src/ranks.c
var ranks []byte

// prebuilt holds the program if make build compiled it.
//
//go:embed prebuilt
var prebuilt embed.FS

func target() cc.Target {
	built, _ := fs.Sub(prebuilt, "prebuilt") // the name is a valid one
	return cc.Target{Name: "matmul", Source: source, Flags: []string{"-pthread", "-ldl", "-lm"}, Prebuilt: built}
}

// Build builds the program in a folder below dir (empty: the user's cache) and returns its path. It
// reuses an existing one. It needs gcc, unless Prebuild ran before this program was built, and no
// CUDA toolkit.
func Build(dir string) (path string, err error) {
	if dir == "" {
		dir = cc.CacheDir()
	}
	return cc.Build(context.Background(), dir, target())
}

// BuildRanks compiles the program whose parts on several simulated GPUs wait for each other, as an
// NCCL job's do: see src/ranks.c. Its time line has an event kernels_end for each step.
func BuildRanks(dir string) (path string, err error) {
	if dir == "" {
		dir = cc.CacheDir()
	}
	return cc.Build(context.Background(), dir, cc.Target{Name: "ranks", Source: ranks, Flags: []string{"-pthread", "-ldl"}})
}

// Prebuild compiles the program for the machine into dir, this package's folder prebuilt, for
// programs that are built after that.
func Prebuild(ctx context.Context, dir string, m cc.Machine) error {
	return cc.Prebuild(ctx, dir, target(), m)
}
