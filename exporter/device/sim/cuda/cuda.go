// Package cuda builds a stand-in libcuda.so.1 that computes on a simulated GPU.
//
// It has the driver API's own names, so that what watches the real library
// (uprobes, fanotify) works on it unchanged, and a program that loads
// libcuda.so.1 cannot tell the difference, except that device memory has no
// content: copies from the device leave the target as it was. src/libcuda.c says
// which functions there are.
package cuda

import (
	"context"
	"embed"
	"io/fs"
	"path/filepath"

	"github.com/laxity/laxity/internal/cc"
)

// EnvLibrary names a folder with the library, for programs that have no compiler and may
// not write; the library itself does not read it.
const EnvLibrary = "LAXITY_SIM_LIBRARY"

// What the library reads from a tenant's environment.
const (
	EnvSocket        = "LAXITY_SIM_SOCKET"         // path of the server's socket; without it there is no device
	EnvInitSeconds   = "LAXITY_SIM_INIT_SECONDS"   // the first cuInit of a process takes so long
	EnvKernelSeconds = "LAXITY_SIM_KERNEL_SECONDS" // every kernel takes so long alone, whatever its size
	EnvWatts         = "LAXITY_SIM_WATTS"          // what the GPU draws beyond its idle power while the process computes
)

//go:embed src/libcuda.c
var source []byte

// prebuilt has the library where make build compiled it.
//
//go:embed prebuilt
var prebuilt embed.FS

func target() cc.Target {
	built, _ := fs.Sub(prebuilt, "prebuilt") // the name is a valid one
	return cc.Target{
		Name:   "libcuda.so.1",
		Source: source,
		// Functions with the same body stay apart, so that a probe on one name fires
		// for that name only.
		Flags:    []string{"-fno-ipa-icf", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-fvisibility=hidden", "-pthread", "-lm"},
		Prebuilt: built,
	}
}

// Build puts the library into a folder below dir (an empty dir is the user's
// cache) and returns the folder that holds libcuda.so.1, for LD_LIBRARY_PATH. A
// library that is there is used again. It needs gcc unless Prebuild ran before this
// program was built.
func Build(dir string) (libDir string, err error) {
	if dir == "" {
		dir = cc.CacheDir()
	}
	lib, err := cc.Build(context.Background(), dir, target())
	return filepath.Dir(lib), err
}

// Prebuild compiles the library for the machine into dir, this package's folder prebuilt, for
// programs that are built from then on.
func Prebuild(ctx context.Context, dir string, m cc.Machine) error {
	return cc.Prebuild(ctx, dir, target(), m)
}
