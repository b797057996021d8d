//go:build linux && cgo

package libcuda

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// As cuda.h 12.8 and newer declare them (CUcheckpointLockArgs and so on): 64 bytes
// each, and what is not named must be zero. In 13.0 the restore's became a list of
// GPU pairs, for a restore on other GPUs: zeros mean the same ones.
typedef struct { unsigned timeout_ms; unsigned reserved0; uint64_t reserved1[7]; } lock_args;
typedef struct { uint64_t reserved[8]; } other_args;
_Static_assert(sizeof(lock_args) == 64 && sizeof(other_args) == 64, "cuda.h");

struct laxity_cuda {
	int (*init)(unsigned);
	int (*version)(int *);
	int (*state)(int pid, int *state);
	int (*lock)(int pid, lock_args *);
	int (*checkpoint)(int pid, other_args *);
	int (*restore)(int pid, other_args *);
	int (*unlock)(int pid, other_args *);
};

static void *laxity_open(const char *name, char **error) {
	void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (!library)
		*error = dlerror();
	return library;
}

static int laxity_init(struct laxity_cuda *c) { return c->init(0); }
static int laxity_version(struct laxity_cuda *c, int *v) { return c->version ? c->version(v) : 801; }
static int laxity_state(struct laxity_cuda *c, int pid, int *s) { return c->state(pid, s); }
static int laxity_lock(struct laxity_cuda *c, int pid, unsigned ms) {
	lock_args a;
	memset(&a, 0, sizeof a);
	a.timeout_ms = ms;
	return c->lock(pid, &a);
}
static int laxity_step(int (*step)(int, other_args *), int pid) {
	other_args a;
	memset(&a, 0, sizeof a);
	return step(pid, &a);
}
static int laxity_checkpoint(struct laxity_cuda *c, int pid) { return laxity_step(c->checkpoint, pid); }
static int laxity_restore(struct laxity_cuda *c, int pid) { return laxity_step(c->restore, pid); }
static int laxity_unlock(struct laxity_cuda *c, int pid) { return laxity_step(c->unlock, pid); }
*/
import "C"

import (
	"fmt"
	"strings"
	"unsafe"

	"github.com/laxity/laxity/actuator/enforce/checkpoint"
)

type functions struct{ c C.struct_laxity_cuda }

// Open loads the library (an empty name is libcuda.so.1) and initialises it. That makes
// no context: the process holds no GPU memory and is in no list of GPU processes.
// The error wraps checkpoint.ErrUnavailable; the Library that comes with it says what
// was found nevertheless, and is nil where there is none.
func Open(name string) (*Library, error) {
	if name == "" {
		name = "libcuda.so.1"
	}
	cName := C.CString(name)
	defer C.free(unsafe.Pointer(cName))
	var reason *C.char
	handle := C.laxity_open(cName, &reason)
	if handle == nil {
		return nil, fmt.Errorf("%w: %s (is NVIDIA's driver installed?)", checkpoint.ErrUnavailable, C.GoString(reason))
	}
	l := &Library{}
	l.find(handle)
	var version C.int
	if C.laxity_version(&l.functions.c, &version) == 0 {
		l.Version = int(version)
	}
	if len(l.Missing) > 0 {
		return l, fmt.Errorf("%w: the driver has no %s; it needs version 570 or newer (CUDA 12.8)",
			checkpoint.ErrUnavailable, strings.Join(l.Missing, ", "))
	}
	if err := result(C.laxity_init(&l.functions.c)); err != nil {
		return l, fmt.Errorf("%w: cuInit: %w", checkpoint.ErrUnavailable, err)
	}
	return l, nil
}

func (l *Library) find(handle unsafe.Pointer) {
	f := &l.functions.c
	for _, w := range []struct {
		name     string
		at       unsafe.Pointer
		optional bool
	}{
		{"cuInit", unsafe.Pointer(&f.init), false},
		{"cuDriverGetVersion", unsafe.Pointer(&f.version), true},
		{"cuCheckpointProcessGetState", unsafe.Pointer(&f.state), false},
		{"cuCheckpointProcessLock", unsafe.Pointer(&f.lock), false},
		{"cuCheckpointProcessCheckpoint", unsafe.Pointer(&f.checkpoint), false},
		{"cuCheckpointProcessRestore", unsafe.Pointer(&f.restore), false},
		{"cuCheckpointProcessUnlock", unsafe.Pointer(&f.unlock), false},
	} {
		name := C.CString(w.name)
		address := C.dlsym(handle, name)
		C.free(unsafe.Pointer(name))
		*(*unsafe.Pointer)(w.at) = address
		if address == nil && !w.optional {
			l.Missing = append(l.Missing, w.name)
		}
	}
}

// State is cuCheckpointProcessGetState.
func (l *Library) State(pid int) (checkpoint.State, error) {
	var s C.int
	if err := result(C.laxity_state(&l.functions.c, C.int(pid), &s)); err != nil {
		return "", err
	}
	switch s { // CUprocessState
	case 0:
		return checkpoint.Running, nil
	case 1:
		return checkpoint.Locked, nil
	case 2:
		return checkpoint.Checkpointed, nil
	case 3:
		return checkpoint.Failed, nil
	case 4, 5: // later drivers: checkpointing, restoring
		return checkpoint.Moving, nil
	default:
		return "", fmt.Errorf("unknown checkpoint state %d", int(s))
	}
}

// Lock is cuCheckpointProcessLock; 0 ms is no limit.
func (l *Library) Lock(pid int, milliseconds uint32) error {
	return result(C.laxity_lock(&l.functions.c, C.int(pid), C.uint(milliseconds)))
}

// Checkpoint is cuCheckpointProcessCheckpoint.
func (l *Library) Checkpoint(pid int) error {
	return result(C.laxity_checkpoint(&l.functions.c, C.int(pid)))
}

// Restore is cuCheckpointProcessRestore, on the same GPUs.
func (l *Library) Restore(pid int) error {
	return result(C.laxity_restore(&l.functions.c, C.int(pid)))
}

// Unlock is cuCheckpointProcessUnlock.
func (l *Library) Unlock(pid int) error {
	return result(C.laxity_unlock(&l.functions.c, C.int(pid)))
}

func result(code C.int) error {
	if code == 0 {
		return nil
	}
	return checkpoint.Code(code)
}
