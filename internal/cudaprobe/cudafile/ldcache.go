package cudafile

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// The cache of the dynamic linker, /etc/ld.so.cache, lists where else a root keeps its libraries.
// Format "glibc-ld.so.cache1.1": a header, entries, strings; old systems put an older format before
// it.
const (
	cacheMagic  = "glibc-ld.so.cache1.1"
	cacheHeader = 48
	cacheEntry  = 24
	maxCache    = 4 << 20
)

// cached returns the paths of the driver in a root's linker cache.
func cached(root *os.File) []string {
	fd, err := unix.Openat2(int(root.Fd()), "/etc/ld.so.cache", &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	file, err := reopen(fd, "/etc/ld.so.cache")
	if err != nil {
		return nil
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file.file, maxCache))
	if err != nil {
		return nil
	}
	return parseCache(data)
}

func parseCache(data []byte) []string {
	at := bytes.Index(data, []byte(cacheMagic))
	if at < 0 || len(data)-at < cacheHeader {
		return nil
	}
	data = data[at:]
	count := binary.NativeEndian.Uint32(data[len(cacheMagic):])
	var paths []string
	for i := range uint64(count) {
		begin := cacheHeader + i*cacheEntry
		if begin+cacheEntry > uint64(len(data)) || len(paths) >= maxFiles {
			break
		}
		key := stringAt(data, binary.NativeEndian.Uint32(data[begin+4:]))
		if slices.Contains(libraryNames, key) {
			paths = append(paths, stringAt(data, binary.NativeEndian.Uint32(data[begin+8:])))
		}
	}
	return paths
}

// stringAt copies only the string: a host's cache has thousands.
func stringAt(data []byte, offset uint32) string {
	if uint64(offset) >= uint64(len(data)) {
		return ""
	}
	s, _, found := bytes.Cut(data[offset:min(len(data), int(offset)+4096)], []byte{0})
	if !found {
		return ""
	}
	return string(s)
}
