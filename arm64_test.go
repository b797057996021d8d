package laxity_test

import (
	"os"
	"os/exec"
	"runtime"
	"testing"

	"github.com/laxity/laxity/internal/needtest"
)

// TestPurePackagesOnARM64 runs the tests of the pure packages for arm64. They reach nothing of the
// machine, so that an emulator of the processor alone is enough; make test-arm64 runs this test.
func TestPurePackagesOnARM64(t *testing.T) {
	if os.Getenv("LAXITY_ARM64") == "" {
		needtest.QEMU.Skip(t, "an emulated processor takes minutes: make test-arm64")
	}
	args := []string{"test", "-short", "-timeout=30m"} // a busy machine emulates slowly
	if runtime.GOARCH != "arm64" {
		emulator, err := exec.LookPath("qemu-aarch64")
		if err != nil {
			needtest.QEMU.Skip(t, "qemu-aarch64 is not here (Debian and Ubuntu: apt-get install qemu-user)")
		}
		args = append(args, "-exec="+emulator)
	}
	for _, p := range pure {
		args = append(args, module+"/"+p)
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Env = append(os.Environ(), "GOARCH=arm64", "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}
