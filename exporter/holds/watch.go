package holds

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// What inotify reports of the root, and of a folder of records. Records arrive by renames, so
// a file that is being written wakes nobody.
const (
	ofRoot   = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR
	ofFolder = unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_DELETE | unix.IN_ONLYDIR
)

// watch is an inotify instance.
type watch struct {
	file *os.File
	root int32
	buf  [16 << 10]byte
}

// event is an inotify event. gone: the watched folder is gone.
type event struct {
	watch int32
	gone  bool
	name  string
}

func openWatch() (*watch, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch the records of held processes: inotify: %w", err)
	}
	return &watch{file: os.NewFile(uintptr(fd), "inotify")}, nil //nolint:gosec // a descriptor
}

func (w *watch) Close() error { return w.file.Close() }

func (w *watch) addRoot(dir string) (err error) {
	w.root, err = w.add(dir, ofRoot)
	return err
}

// addFolder is idempotent: a folder has one descriptor.
func (w *watch) addFolder(dir string) (int32, error) { return w.add(dir, ofFolder) }

func (w *watch) add(dir string, mask uint32) (int32, error) {
	id := 0
	var errCall error
	raw, err := w.file.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { id, errCall = unix.InotifyAddWatch(int(fd), dir, mask) })
	}
	if err == nil {
		err = errCall
	}
	if err != nil {
		return 0, fmt.Errorf("watch the records of held processes: %s: %w", dir, err)
	}
	return int32(id), nil //nolint:gosec // the kernel's are 32 bits
}

// read waits for events.
func (w *watch) read() ([]event, error) {
	n, err := w.file.Read(w.buf[:])
	if err != nil {
		return nil, fmt.Errorf("watch the records of held processes: %w", err)
	}
	var all []event
	for b := w.buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
		order := binary.NativeEndian
		id, mask, size := int32(order.Uint32(b)), order.Uint32(b[4:]), int(order.Uint32(b[12:])) //nolint:gosec // its bits
		end := min(unix.SizeofInotifyEvent+size, len(b))
		name := b[unix.SizeofInotifyEvent:end]
		all = append(all, event{
			watch: id, gone: mask&(unix.IN_IGNORED|unix.IN_DELETE_SELF|unix.IN_MOVE_SELF) != 0,
			name: string(bytes.TrimRight(name, "\x00")),
		})
		b = b[end:]
	}
	return all, nil
}
