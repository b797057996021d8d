package rm_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/laxity/laxity/internal/rm"
	"github.com/laxity/laxity/internal/rm/rmtest"
)

// liar is a resource manager whose answers are what a script says: after how many calls, what
// is wrong with the answer, and a value; after the script it tells the truth.
type liar struct {
	*rmtest.RM
	t      *testing.T
	victim int // whose handles we may act on

	mu       sync.Mutex
	script   []byte
	wait     int
	lie      byte // what is wrong now; 0: nothing
	value    uint32
	lasts    bool
	ioctls   int
	enough   func() // ends what is under way after mostIoctls
	pidfds   map[int]int
	theirs   map[int]bool       // our duplicates of descriptors of the victim
	answered map[[2]uint32]bool // client and object that were said to be there, over these
}

const (
	stepSize   = 7
	mostIoctls = 40_000
	// goesOn is how many ioctls may follow when the caller's time is over: 256 handles between
	// two looks at it, and what is read before that.
	goesOn = 2000
	always = 0x80 // of a lie: until the next one
)

// next is what is wrong with the next answer.
func (l *liar) next() (lie byte, value uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.lasts {
		l.lie = 0
	}
	if l.wait--; l.wait < 0 && len(l.script) >= stepSize {
		l.wait = int(binary.LittleEndian.Uint16(l.script)) % 4096
		l.lie, l.lasts = l.script[2]&^always, l.script[2]&always != 0
		l.value = binary.LittleEndian.Uint32(l.script[3:])
		l.script = l.script[stepSize:]
	}
	return l.lie, l.value
}

func (l *liar) fails() error {
	switch lie, _ := l.next(); lie % 8 {
	case 5:
		return rm.ErrGone
	case 6:
		return syscall.EIO
	case 7:
		return rm.ErrChanged
	}
	return nil
}

func (l *liar) Uptime() (time.Duration, error) {
	if err := l.fails(); err != nil {
		return 0, err
	}
	return l.RM.Uptime()
}

func (l *liar) Stat(pid int) (rm.Stat, error) {
	stat, err := l.RM.Stat(pid)
	switch lie, value := l.next(); lie % 8 {
	case 1:
		stat.Start = uint64(value)
	case 2:
		stat.Exiting = true
	case 5:
		err = rm.ErrGone
	case 6:
		err = syscall.EIO
	}
	return stat, err
}

func (l *liar) Descriptors(ctx context.Context, pid int) ([]int, error) {
	fds, err := l.RM.Descriptors(ctx, pid)
	switch lie, value := l.next(); lie % 8 {
	case 1:
		fds = append(fds, int(value), -1, int(value))
	case 2:
		fds = nil
	case 6:
		err = syscall.EIO
	}
	return fds, err
}

func (l *liar) Device(fd int) (rm.Device, error) {
	device, err := l.RM.Device(fd)
	switch lie, value := l.next(); lie % 8 {
	case 1:
		device = rm.Device{Char: value&1 != 0, NVIDIA: value&2 != 0, Major: value >> 2, Minor: value >> 16}
	case 6:
		err = syscall.EIO
	}
	return device, err
}

func (l *liar) Pidfd(pid int) (int, error) {
	if err := l.fails(); err != nil {
		return -1, err
	}
	fd, err := l.RM.Pidfd(pid)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.pidfds[fd] = pid
	}
	return fd, err
}

func (l *liar) Duplicate(pidfd, fd int) (int, error) {
	if err := l.fails(); err != nil {
		return -1, err
	}
	dup, err := l.RM.Duplicate(pidfd, fd)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && l.pidfds[pidfd] == l.victim {
		l.theirs[dup] = true
	}
	return dup, err
}

func (l *liar) Close(fd int) error {
	l.mu.Lock()
	delete(l.pidfds, fd)
	delete(l.theirs, fd)
	l.mu.Unlock()
	return l.RM.Close(fd)
}

func (l *liar) Open() (int, error) {
	if err := l.fails(); err != nil {
		return -1, err
	}
	return l.RM.Open()
}

func (l *liar) Ioctl(fd int, request uint32, arg, params []byte) error {
	l.mu.Lock()
	if l.ioctls++; l.ioctls == mostIoctls {
		l.enough()
	}
	theirs := l.theirs[fd]
	l.mu.Unlock()
	order := binary.LittleEndian
	client, object, cmd := order.Uint32(arg), order.Uint32(arg[4:]), order.Uint32(arg[8:])
	control := request == 0xc020462a
	if control && (cmd == rmtest.CmdSetSlice || cmd == rmtest.CmdDisable) {
		l.acts(theirs, client, object, cmd, params)
	}
	about := uint32(0)
	if control && cmd == rmtest.CmdHandleInfo {
		about = order.Uint32(params)
	}
	err := l.RM.Ioctl(fd, request, arg, params)
	lie, value := l.next()
	switch lie % 8 {
	case 1:
		order.PutUint32(arg[28:], value)
	case 2: // there, with this as result
		order.PutUint32(arg[28:], 0)
		if at := 8; control && len(params) >= at+4 {
			order.PutUint32(params[at:], value)
		} else if !control {
			order.PutUint32(arg[8:], value)
		}
	case 3:
		order.PutUint32(arg[28:], 0)
		for i := range params {
			params[i] = byte(value >> (i % 4 * 8))
		}
	case 4:
		for i := range arg {
			arg[i] ^= byte(value >> (i % 4 * 8))
		}
	case 6:
		err = syscall.Errno(value%130 + 1)
	}
	if err == nil && about != 0 && theirs && order.Uint32(arg[28:]) == 0 {
		l.mu.Lock()
		l.answered[[2]uint32{client, client}], l.answered[[2]uint32{client, about}] = true, true
		l.mu.Unlock()
	}
	return err
}

// acts checks that what we act on was answered for, over a descriptor of the process that is meant.
func (l *liar) acts(theirs bool, client, object, cmd uint32, params []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !theirs || !l.answered[[2]uint32{client, client}] {
		l.t.Errorf("it acts on client %#x, over a descriptor of the process: %v", client, theirs)
	}
	order := binary.LittleEndian
	if cmd == rmtest.CmdSetSlice {
		if !l.answered[[2]uint32{client, object}] {
			l.t.Errorf("it sets the slice of %#x", object)
		}
		return
	}
	n := int(order.Uint32(params[4:]))
	if n == 0 || n > 64 {
		l.t.Fatalf("it switches %d channels", n)
	}
	for i := range n {
		of, channel := order.Uint32(params[24+4*i:]), order.Uint32(params[24+256+4*i:])
		if of != client || !l.answered[[2]uint32{of, channel}] {
			l.t.Errorf("it switches channel %#x of client %#x over %#x", channel, of, client)
		}
	}
}

// Whatever the resource manager answers, each call ends after a bounded number of ioctls with a
// result or an error that callers can tell, nothing is acted on but handles that were answered
// for over the process's own descriptors, and no descriptor stays open.
func FuzzAnswers(f *testing.F) {
	step := func(after uint16, lie byte, value uint32) []byte {
		s := binary.LittleEndian.AppendUint16(nil, after)
		return binary.LittleEndian.AppendUint32(append(s, lie), value)
	}
	f.Add([]byte(nil))
	for _, lie := range []byte{1, 2, 3, 4, 5, 6, 7} {
		for _, value := range []uint32{0, 0x41, 0x57, 0x900e, 0x2080, 0xa06c, 0xc86f, 0xcbc0, 0xc1d00000, 0x5c000002, 1 << 31, 1<<32 - 1} {
			for _, after := range []uint16{0, 8, 530, 700} {
				f.Add(append(step(after, lie, value), step(after, lie|always, value)...))
			}
		}
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		fake := rmtest.New(gpu0, gpu1)
		l := &liar{RM: fake, t: t, victim: 10, enough: func() {},
			pidfds: map[int]int{}, theirs: map[int]bool{}, answered: map[[2]uint32]bool{}}
		m := rm.New(l, rm.Options{Gap: 64, Timeout: time.Hour})
		if err := m.Mark(t.Context()); err != nil {
			t.Fatal(err)
		}
		fake.Advance(time.Second)
		startTenant(fake, 9)
		p, g := startTenant(fake, 10)
		l.script = script
		if len(script) >= 2 {
			l.wait = int(binary.LittleEndian.Uint16(script)) % 4096
		}
		call := func(name string, do func(context.Context) error) {
			ctx, enough := context.WithCancel(t.Context())
			defer enough()
			l.mu.Lock()
			l.ioctls, l.enough = 0, enough
			l.mu.Unlock()
			ended := make(chan error, 1)
			go func() { ended <- do(ctx) }()
			err := <-ended
			// One that was given up may be under way still: the next call of the process waits for it.
			_, _ = m.Slice(t.Context(), rm.Group{Process: p.ID(), FD: -1})
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.ioctls > mostIoctls+goesOn {
				t.Errorf("%s takes %d ioctls", name, l.ioctls)
			}
			if err != nil && !named(err) {
				t.Errorf("%s: %v", name, err)
			}
		}
		groups := []rm.Group{g}
		find := func(ctx context.Context) error {
			got, err := m.Find(ctx, p.ID())
			if len(got) > 0 {
				groups = got
			}
			return err
		}
		for _, later := range []time.Duration{0, 50 * time.Millisecond, 11 * time.Second} {
			fake.Advance(later)
			call("find", find)
		}
		for _, g := range groups[:min(len(groups), 3)] {
			call("slice", func(ctx context.Context) error { _, err := m.Slice(ctx, g); return err })
			call("set slice", func(ctx context.Context) error { return m.SetSlice(ctx, g, time.Millisecond) })
			call("state", func(ctx context.Context) error { _, err := m.State(ctx, g); return err })
		}
		for _, on := range []bool{false, true} {
			call("switch", func(ctx context.Context) error { return m.Switch(ctx, groups, on) })
		}
		call("mark", m.Mark)
		call("find again", find)
		if n := fake.Held(); n != 0 {
			t.Errorf("%d descriptors are open", n)
		}
	})
}

// named reports whether a caller can tell an error.
func named(err error) bool {
	var status rm.Status
	var errno syscall.Errno
	for _, one := range []error{rm.ErrGone, rm.ErrChanged, rm.ErrUnsupported, rm.ErrUnfinished, context.Canceled, fs.ErrNotExist} {
		if errors.Is(err, one) {
			return true
		}
	}
	return (errors.As(err, &status) || errors.As(err, &errno)) && !strings.Contains(err.Error(), "panic")
}
