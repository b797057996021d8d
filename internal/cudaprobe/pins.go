package cudaprobe

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// bpfFS is where the kernel's file system for BPF objects is mounted by custom.
const bpfFS = "/sys/fs/bpf"

// PinFolder is where the record of a guard with this name is.
func PinFolder(name string) string { return filepath.Join(bpfFS, name) }

// RemoveRecord removes the names of a record that nobody needs any more.
func RemoveRecord(pins string) error { return os.RemoveAll(pins) }

// mountBPF makes sure that pins can be made below the custom place.
func mountBPF() error {
	var stat unix.Statfs_t
	if err := unix.Statfs(bpfFS, &stat); err == nil && stat.Type == unix.BPF_FS_MAGIC {
		return nil
	}
	if err := unix.Mount("bpf", bpfFS, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700"); err != nil {
		return fmt.Errorf("%w: no BPF file system at %s, and it cannot be mounted: %w (mount -t bpf bpf %s)", ErrUnsupported, bpfFS, err, bpfFS)
	}
	return nil
}
