package rm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// file is an open file of the control device: a duplicate, or one of our own.
type file struct {
	kernel Kernel
	fd     int
	lent   *lender  // of goroutines that ask; nil: it is asked nothing ahead
	arg    [32]byte // of a control; reused, since a search makes thousands
	params [16]byte

	slow    bool // the last question was
	answers map[question]answer
}

// control makes one control call with params, a pointer to a structure of abi.go, and writes the
// answer into it.
func (f *file) control(client, object, cmd uint32, params any) error {
	raw, err := binary.Append(make([]byte, 0, binary.Size(params)), le, params)
	if err != nil {
		return err
	}
	if err := f.rawControl(client, object, cmd, raw); err != nil {
		return err
	}
	_, err = binary.Decode(raw, le, params)
	return err
}

func (f *file) rawControl(client, object, cmd uint32, params []byte) error {
	a := f.arg[:]
	clear(a)
	le.PutUint32(a[0:], client)
	le.PutUint32(a[4:], object)
	le.PutUint32(a[8:], cmd)
	le.PutUint32(a[24:], uint32(len(params)))
	if err := f.kernel.Ioctl(f.fd, request(escControl, len(a)), a, params); err != nil {
		return fmt.Errorf("control %#x: %w", cmd, err)
	}
	if s := Status(le.Uint32(a[28:])); s != 0 {
		return &controlError{cmd, s}
	}
	return nil
}

// controlError is a control call that the resource manager refused. A search makes thousands of
// them, so the text is made only when it is read.
type controlError struct {
	cmd    uint32
	status Status
}

func (e *controlError) Error() string { return fmt.Sprintf("control %#x: %v", e.cmd, e.status) }
func (e *controlError) Unwrap() error { return e.status }

// info asks for the class or the parent of an object.
func (f *file) info(client, object, index uint32) (uint32, error) {
	q := question{client, object, index}
	if a, known := f.answers[q]; known {
		delete(f.answers, q)
		return a.value, a.err
	}
	began := time.Now()
	defer func() { f.slow = time.Since(began) > slowly }()
	return f.ask(client, object, index)
}

func (f *file) ask(client, object, index uint32) (uint32, error) {
	p := f.params[:]
	clear(p)
	le.PutUint32(p[0:], object)
	le.PutUint32(p[4:], index)
	if err := f.rawControl(client, client, cmdHandleInfo, p); err != nil {
		return 0, err
	}
	return le.Uint32(p[8:]), nil
}

// alloc makes an object and returns its handle, which the resource manager chooses.
func (f *file) alloc(root, parent, class uint32, params any) (uint32, error) {
	var raw []byte
	if params != nil {
		raw, _ = binary.Append(nil, le, params) // structures of abi.go have a fixed size
	}
	return f.allocRaw(root, parent, class, raw)
}

func (f *file) allocRaw(root, parent, class uint32, raw []byte) (uint32, error) {
	a := nvos21{Root: root, Parent: parent, Class: class, Size: uint32(len(raw))}
	arg, _ := binary.Append(nil, le, &a)
	if err := f.kernel.Ioctl(f.fd, request(escAlloc, len(arg)), arg, raw); err != nil {
		return 0, fmt.Errorf("make an object of class %#x: %w", class, err)
	}
	if _, err := binary.Decode(arg, le, &a); err != nil {
		return 0, err
	}
	if a.Status != 0 {
		return 0, fmt.Errorf("make an object of class %#x: %w", class, Status(a.Status))
	}
	return a.Object, nil
}

// free ends an object of our client root.
func (f *file) free(root, parent, object uint32) error {
	a := nvos00{Root: root, Parent: parent, Object: object}
	arg, _ := binary.Append(nil, le, &a)
	if err := f.kernel.Ioctl(f.fd, request(escFree, len(arg)), arg, nil); err != nil {
		return fmt.Errorf("end an object: %w", err)
	}
	if s := Status(le.Uint32(arg[12:])); s != 0 {
		return fmt.Errorf("end an object: %w", s)
	}
	return nil
}

// close closes f. If f is the last descriptor of its file, that ends the clients made through f,
// too.
func (f *file) close() { _ = f.kernel.Close(f.fd) }

// open opens the control device for a client of our own.
func (m *Manager) open() (*file, error) {
	fd, err := m.kernel.Open()
	if err != nil {
		return nil, fmt.Errorf("open NVIDIA's control device: %w", err)
	}
	return &file{kernel: m.kernel, fd: fd, lent: &m.lent}, nil
}

// alive returns nil if p runs, else an error that is ErrGone.
func (m *Manager) alive(p Process) error {
	stat, err := m.kernel.Stat(p.PID)
	switch {
	case errors.Is(err, ErrGone):
		return fmt.Errorf("%v: %w", p, ErrGone)
	case err != nil:
		return err
	case stat.Start != p.Start:
		return fmt.Errorf("%v: %w: its PID belongs to another one", p, ErrGone)
	case stat.Exiting:
		return fmt.Errorf("%v: %w: it exits", p, ErrGone)
	}
	return nil
}

// with calls use with a duplicate of descriptor fd of p, and closes it.
func (m *Manager) with(p Process, fd int, use func(f *file) error) error {
	f, err := m.duplicate(p, fd)
	if err != nil {
		return err
	}
	defer f.close()
	return use(f)
}

// duplicate returns a duplicate of descriptor fd of p, which the caller must close soon. It checks
// p only after it holds a pidfd, so that a reused PID is noticed.
func (m *Manager) duplicate(p Process, fd int) (*file, error) {
	pidfd, err := m.kernel.Pidfd(p.PID)
	if err != nil {
		return nil, fmt.Errorf("open %v: %w", p, err)
	}
	defer func() { _ = m.kernel.Close(pidfd) }()
	if err := m.alive(p); err != nil {
		return nil, err
	}
	dup, err := m.kernel.Duplicate(pidfd, fd)
	if errors.Is(err, ErrChanged) { // an exiting process has closed its descriptors
		err = errors.Join(err, m.alive(p))
	}
	if err != nil {
		return nil, fmt.Errorf("duplicate descriptor %d of %v: %w", fd, p, err)
	}
	f := &file{kernel: m.kernel, fd: dup, lent: &m.lent}
	device, err := m.kernel.Device(dup)
	switch {
	case err != nil:
		err = fmt.Errorf("inspect descriptor %d of %v: %w", fd, p, err)
	case !device.control():
		err = fmt.Errorf("%w: descriptor %d of %v is not NVIDIA's control device", ErrChanged, fd, p)
	default:
		return f, nil
	}
	f.close()
	return nil, err
}
