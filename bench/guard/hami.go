package guard

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/docker/docker/api/types/mount"

	"github.com/laxity/laxity/bench"
)

const hamiCore = "hami-core"

// hami is the path of HAMi-core's library; empty: not given. Nothing of it is here.
type hami string

func parseHAMi(env bench.Env) (hami, error) {
	path, err := env.Peer(hamiCore)
	if path == "" || err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("--set hami-core: %w", err)
	}
	return hami(path), nil
}

// folder is mounted into the container.
func (h hami) folder() string { return filepath.Dir(string(h)) }

// env is what its README tells a container to have. It does not read a GPU's UUID, so the card goes by its
// index: the first, as for the other ways. CUDA_REDIRECT is where its dlsym looks for its own functions.
func (h hami) env(limit uint64) []string {
	return []string{
		"CUDA_VISIBLE_DEVICES=0", "LD_PRELOAD=" + string(h), "CUDA_REDIRECT=" + string(h), "LIBCUDA_LOG_LEVEL=0",
		"CUDA_DEVICE_MEMORY_LIMIT=" + strconv.FormatUint(limit, 10), "CUDA_DEVICE_MEMORY_SHARED_CACHE=/tmp/cudevshr.cache",
	}
}

// mounts are a /tmp of the container's own, with the folder in which it locks: its processes share it, others do not.
func (h hami) mounts(folder string) ([]mount.Mount, error) {
	lock := filepath.Join(folder, "vgpulock")
	// The container's user writes there.
	err := errors.Join(os.MkdirAll(lock, 0o755), os.Chmod(folder, 0o777), os.Chmod(lock, 0o777)) //nolint:gosec // see above
	return []mount.Mount{{Type: mount.TypeBind, Source: folder, Target: "/tmp"}}, err
}
