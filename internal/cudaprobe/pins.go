package cudaprobe

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// bpfFS is where the kernel's file system for BPF objects is usually mounted.
const bpfFS = "/sys/fs/bpf"

// PinFolder returns the folder of the record of a guard with this name.
func PinFolder(name string) string { return filepath.Join(bpfFS, name) }

// RemoveRecord removes a record that is no longer needed.
func RemoveRecord(pins string) error { return os.RemoveAll(pins) }

// mountBPF mounts the file system at the usual place if it is not mounted.
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
