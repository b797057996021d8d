package cudaprobe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laxity/laxity/internal/cudaprobe/cudatest"
	"github.com/laxity/laxity/internal/needtest"
)

// hangsInMmap maps a file whose server answers no read, while another program reads it: the mapping waits for
// that reader, and everybody who wants the program's memory waits for the mapping. It prints where a number
// of its memory is, and the PID of the server.
const hangsInMmap = `#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

static long number = 1L << 40;
static const char *path;

static void serve(int fd)
{
	static char in[1 << 20], out[4096];
	for (int opens = 0;;) {
		if (read(fd, in, sizeof in) < 0)
			_exit(0);
		struct fuse_in_header *request = (void *)in;
		struct fuse_out_header *answer = (void *)out;
		size_t n = 0;
		memset(out, 0, sizeof out);
		if (request->opcode == FUSE_INIT) {
			struct fuse_init_out *i = (void *)(answer + 1);
			i->major = FUSE_KERNEL_VERSION;
			i->minor = FUSE_KERNEL_MINOR_VERSION;
			i->max_write = 4096;
			n = sizeof *i;
		} else if (request->opcode == FUSE_GETATTR) {
			struct fuse_attr_out *a = (void *)(answer + 1);
			a->attr_valid = 1000;
			a->attr.ino = 1;
			a->attr.size = 65536;
			a->attr.mode = S_IFREG | 0644;
			a->attr.nlink = 1;
			n = sizeof *a;
		} else if (request->opcode == FUSE_OPEN) {
			/* The second one waits until the first one's read is over. */
			struct fuse_open_out *o = (void *)(answer + 1);
			o->open_flags = FOPEN_KEEP_CACHE | (opens++ ? FOPEN_DIRECT_IO : 0);
			n = sizeof *o;
		} else if (request->opcode == FUSE_READ) {
			continue;
		} else {
			answer->error = -38;
		}
		answer->len = sizeof *answer + n;
		answer->unique = request->unique;
		if (write(fd, out, answer->len) < 0 && request->opcode == FUSE_INIT)
			_exit(1);
	}
}

static void *map(void *unused)
{
	mmap(0, 4096, PROT_READ, MAP_PRIVATE, open(path, O_RDONLY), 0);
	for (;;)
		pause();
}

int main(int argc, char **argv)
{
	char text[99], c;
	pthread_t thread;
	int fd = open("/dev/fuse", O_RDWR), server;
	path = argv[1];
	sprintf(text, "fd=%d,rootmode=100000,user_id=0,group_id=0", fd);
	if (fd < 0 || unshare(CLONE_NEWNS) || mount(0, "/", 0, MS_REC | MS_PRIVATE, 0) || mount("hangs", path, "fuse", 0, text))
		return 1;
	server = fork();
	if (!server)
		serve(fd);
	close(fd);
	if (!fork())
		_exit(read(open(path, O_RDONLY), &c, 1));
	usleep(500000);
	pthread_create(&thread, 0, map, 0);
	usleep(500000);
	write(1, text, sprintf(text, "%lu %d\n", (unsigned long)&number, server));
	for (;;)
		pause();
}
`

// A program whose memory nobody can reach, because a thread of it maps a file on a server that is down, does
// not keep the guard from answering others. What was given up changes nothing once the server answers.
func TestMemoryThatHangsIsGivenUp(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	pid, said := startGroup(t, cudatest.Compile(t, hangsInMmap), file)
	var number uint64
	var server int
	if _, err := fmt.Fscan(said, &number, &server); errors.Is(err, io.EOF) {
		needtest.Namespaces.Skip(t, "a file system of its own (FUSE) cannot be mounted")
	} else if err != nil {
		t.Fatal(err)
	}
	at := waitsAt(t, pid)
	c := Call{PID: pid, TID: pid, entry: at[1], stack: at[0]}
	denies, shows := &MemoryGuard{proc: "/proc"}, &MemoryGuard{proc: "/proc"}
	deny := func() error { return denies.Deny(c, func() bool { return true }) }
	show := func() error {
		return shows.attempts.run(pid, func(a *attempt) error {
			memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
			if err != nil {
				return err
			}
			defer memory.Close()
			return lower(a, memory, number, 1)
		})
	}
	for _, tt := range []struct {
		name   string
		do     func() error
		within time.Duration // a busy machine adds to it
	}{
		{"deny", deny, attemptWithin * 4}, {"show", show, attemptWithin * 4},
		{"deny again", deny, attemptWithin / 2}, {"show again", show, attemptWithin / 2},
	} {
		done, began := make(chan error, 1), time.Now()
		go func() { done <- tt.do() }()
		select {
		case err := <-done:
			if took := time.Since(began); err == nil || took > tt.within {
				t.Errorf("%s: %v after %v", tt.name, err, took)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%s: hangs", tt.name)
		}
	}
	if err := deny(); !errors.Is(err, ErrCannotDeny) {
		t.Error(err)
	}

	if err := syscall.Kill(server, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for _, as := range []*attempts{&denies.attempts, &shows.attempts} {
		for deadline := time.Now().Add(20 * time.Second); as.refuses(pid) != nil; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("what was given up does not end once the server is gone")
			}
		}
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err == nil && strings.Contains(string(status), "TracerPid:\t0\n") && strings.Contains(string(status), "State:\tS") {
			break
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("it does not go on: %v\n%s", err, status)
		}
	}
	if now := waitsAt(t, pid); now != at {
		t.Errorf("it is at %#x, and was at %#x", now, at)
	}
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	var word [8]byte
	if _, err := memory.ReadAt(word[:], int64(number)); err != nil || binary.NativeEndian.Uint64(word[:]) != 1<<40 {
		t.Errorf("the number is %#x now, %v", word, err)
	}
}

// waitsAt returns the stack and the next instruction of a thread, once it waits in a system call.
func waitsAt(t *testing.T, pid int) (at [2]uint64) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", pid))
		fields := strings.Fields(string(line))
		if err != nil || len(fields) != 9 && time.Now().After(deadline) {
			t.Fatalf("%q, %v", line, err)
		}
		if len(fields) != 9 {
			continue
		}
		for i, field := range fields[7:] {
			if at[i], err = strconv.ParseUint(field, 0, 64); err != nil {
				t.Fatal(err)
			}
		}
		return at
	}
}
