// Command prebuild compiles the stand-in libcuda and the CUDA workload into the folders from
// which the programs embed them. make build runs it in the root of the repository.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/laxity/laxity/exporter/device/sim/cuda"
	"github.com/laxity/laxity/internal/cc"
	"github.com/laxity/laxity/internal/workload"
)

func main() {
	ctx := context.Background()
	var m cc.Machine
	flag.StringVar(&m.Arch, "arch", "", "compile for this architecture, as GOARCH names it; empty: this machine's")
	flag.StringVar(&m.Compiler, "cc", "", "C compiler for it; empty: $CC, cc or gcc")
	flag.Parse()
	err := errors.Join(cuda.Prebuild(ctx, "exporter/device/sim/cuda/prebuilt", m), workload.Prebuild(ctx, "internal/workload/prebuilt", m))
	if err != nil {
		fmt.Fprintln(os.Stderr, "prebuild:", err)
		os.Exit(1)
	}
}
