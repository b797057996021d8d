package cudafile

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/laxity/laxity/internal/memorymap"
)

// maxFiles bounds the files that we inspect for one process or root.
const maxFiles = 16

// maxTries bounds the files of one memory map that we try to open.
const maxTries = 64

// libraryNames are those under which programs load the driver.
var libraryNames = []string{"libcuda.so.1", "libcuda.so"}

// usual is where distributions, images and NVIDIA's toolkit put the driver.
var usual = candidates([]string{
	"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu",
	"/usr/lib64", "/usr/lib", "/lib64", "/lib", "/usr/local/lib", "/usr/local/lib64",
	"/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/local/cuda/compat", "/usr/local/cuda/compat/lib.real",
	"/usr/lib64/nvidia", "/usr/lib/nvidia", "/usr/lib/nvidia-current", "/opt/nvidia/lib64",
	"/run/opengl-driver/lib", "/usr/lib/wsl/lib",
})

// Finder looks for files of the driver.
type Finder struct {
	// Proc is where the host's proc file system is mounted. Empty: /proc.
	Proc string
	// Leased, if not nil, is called with each file that is left out because it cannot be opened
	// now (LeasedError).
	Leased func(ID)
}

// Host returns the files that programs of the host load. The host's root is that of process 1 if it
// is readable, else our own.
func (f Finder) Host() []*File {
	var found set
	for _, root := range []string{filepath.Join(f.proc(), "1", "root"), "/"} {
		dir, err := openRoot(root)
		if err != nil {
			continue
		}
		f.inRoot(&found, dir, nil)
		_ = dir.Close()
	}
	return found.files
}

// Container returns the files that a process may load later, and those that it has loaded: in its
// root, in what is mounted there, and in its memory map, as far as that is read. The error is about
// the process as a whole; finding no file is no error.
func (f Finder) Container(pid int) ([]*File, error) {
	var found set
	if err := f.mapped(&found, pid); err != nil && !errors.Is(err, memorymap.ErrTooLarge) {
		return nil, err
	}
	root, err := openRoot(f.of(pid, "root"))
	if err != nil {
		CloseAll(found.files)
		return nil, fmt.Errorf("root of process %d: %w", pid, err)
	}
	defer root.Close()
	f.inRoot(&found, root, append(f.libraryPath(pid), f.mounts(pid)...))
	return found.files, nil
}

// Mapped returns the files that a process has loaded. If it finds none, the error wraps
// memorymap.ErrTooLarge where the map is too long to be read to its end, or a LeasedError where a
// file cannot be opened now.
func (f Finder) Mapped(pid int) ([]*File, error) {
	var found set
	err := f.mapped(&found, pid)
	switch some := len(found.files) > 0; {
	case some && errors.Is(err, memorymap.ErrTooLarge):
		err = nil
	case !some && err == nil && found.leased != nil:
		err = fmt.Errorf("memory map of process %d: %w", pid, found.leased)
	}
	return found.files, err
}

func (f Finder) mapped(found *set, pid int) error {
	seen := map[string]bool{}
	err := memorymap.Default.Search(f.of(pid, "maps"), "/libcuda.so", func(line []byte) bool {
		span, inode, name, ok := parseMap(string(line))
		if !ok || seen[inode+name] || !strings.HasPrefix(path.Base(name), "libcuda.so") {
			return true
		}
		seen[inode+name] = true
		// The link in map_files leads to the mapped file itself, even if it was removed or replaced.
		// Reading it takes more rights than the path does.
		file, err := openPath(f.of(pid, "map_files", span), name)
		if leased := (*LeasedError)(nil); err != nil && !errors.As(err, &leased) {
			file, err = f.openIn(pid, name)
		}
		f.take(found, file, err)
		return !found.full() && len(seen) < maxTries
	})
	if err != nil {
		return fmt.Errorf("memory map of process %d: %w", pid, err)
	}
	return nil
}

func (f Finder) openIn(pid int, name string) (*File, error) {
	root, err := openRoot(f.of(pid, "root"))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return openAt(root, name)
}

// parseMap reads "7f00-7f10 r-xp 00000000 08:01 1234   /path with blanks". span
// is how the folder map_files names it: without leading zeros.
func parseMap(line string) (span, inode, name string, ok bool) {
	fields := strings.SplitN(line, " ", 6)
	if len(fields) < 6 {
		return "", "", "", false
	}
	begin, end, ok := strings.Cut(fields[0], "-")
	if !ok {
		return "", "", "", false
	}
	first, err1 := strconv.ParseUint(begin, 16, 64)
	last, err2 := strconv.ParseUint(end, 16, 64)
	if err1 != nil || err2 != nil {
		return "", "", "", false
	}
	return fmt.Sprintf("%x-%x", first, last), fields[3] + ":" + fields[4], strings.TrimLeft(fields[5], " "), true
}

func (f Finder) inRoot(found *set, root *os.File, more []string) {
	for _, names := range [...][]string{usual, candidates(more), cached(root)} {
		for _, name := range names {
			f.tryOpen(found, root, name)
		}
	}
}

func (f Finder) tryOpen(found *set, root *os.File, name string) {
	if found.full() {
		return
	}
	file, err := openAt(root, name)
	f.take(found, file, err)
}

// take adds a file that was opened. It notes one that is leased.
func (f Finder) take(found *set, file *File, err error) {
	if err == nil {
		found.add(file)
		return
	}
	if leased := (*LeasedError)(nil); errors.As(err, &leased) {
		found.leased = leased
		if f.Leased != nil {
			f.Leased(leased.ID)
		}
	}
}

// candidates are paths at which a folder may hold the driver. A folder's name may itself be the
// driver's: that of a single mounted file.
func candidates(folders []string) []string {
	var paths []string
	for _, folder := range folders {
		if strings.HasPrefix(path.Base(folder), "libcuda.so") {
			paths = append(paths, folder)
			continue
		}
		for _, name := range libraryNames {
			paths = append(paths, path.Join(folder, name))
		}
	}
	return paths
}

// libraryPath reads the process's first LD_LIBRARY_PATH.
func (f Finder) libraryPath(pid int) []string {
	const limit = 64
	environ, err := os.Open(f.of(pid, "environ"))
	if err != nil {
		return nil
	}
	defer environ.Close()
	data, _ := io.ReadAll(io.LimitReader(environ, 1<<20))
	for variable := range bytes.SplitSeq(data, []byte{0}) {
		if value, ok := bytes.CutPrefix(variable, []byte("LD_LIBRARY_PATH=")); ok {
			folders := strings.Split(string(value), ":")
			return folders[:min(len(folders), limit)]
		}
	}
	return nil
}

// mounts are the mount points in the process's root.
func (f Finder) mounts(pid int) []string {
	const limit = 256
	info, err := os.Open(f.of(pid, "mountinfo"))
	if err != nil {
		return nil
	}
	defer info.Close()
	var points []string
	for lines := bufio.NewScanner(info); lines.Scan() && len(points) < limit; {
		if fields := strings.Fields(lines.Text()); len(fields) > 4 {
			point := unescape.Replace(fields[4])
			points = append(points, point, path.Join(point, "lib"), path.Join(point, "lib64"))
		}
	}
	return points
}

// unescape undoes what mountinfo does to blanks.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

func (f Finder) proc() string {
	if f.Proc == "" {
		return "/proc"
	}
	return f.Proc
}

func (f Finder) of(pid int, elem ...string) string {
	return filepath.Join(append([]string{f.proc(), strconv.Itoa(pid)}, elem...)...)
}

func openRoot(name string) (*os.File, error) {
	root, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	if stat, err := root.Stat(); err != nil || !stat.IsDir() {
		return nil, errors.Join(err, root.Close(), fmt.Errorf("%s is no folder", name))
	}
	return root, nil
}

// set is files, each inode once.
type set struct {
	files  []*File
	ids    map[ID]bool
	leased error // of one that could not be opened; nil: there was none
}

func (s *set) full() bool { return len(s.files) >= maxFiles }

func (s *set) add(f *File) {
	if s.ids[f.ID] {
		_ = f.Close()
		return
	}
	if s.ids == nil {
		s.ids = map[ID]bool{}
	}
	s.ids[f.ID] = true
	s.files = append(s.files, f)
}
