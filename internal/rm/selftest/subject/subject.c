// The helper process of the self-test: one context, one kernel. See subject.h.
#include "subject.h"
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

// shared is type shared of helper.go.
struct shared {
	_Atomic uint32_t ready;  // 1: the context exists
	_Atomic uint32_t launch; // counted up by the starter: launch once more
	_Atomic uint32_t most;   // microseconds that the kernel may take
	_Atomic uint32_t done;   // the last launch that ended
	_Atomic uint32_t stop;   // 1: the kernel is to end
	_Atomic uint32_t beat;   // its counter
	_Atomic uint32_t wrong;  // 1: a launch ended with an error
	uint32_t unused;
	char error[96];
};
_Static_assert(sizeof(struct shared) == 128, "helper.go");

typedef uint64_t ptr;
#define DRIVER(X)                                                                              \
	X(cuInit, (unsigned))                                                                  \
	X(cuDeviceGet, (int *, int))                                                           \
	X(cuDeviceGetAttribute, (int *, int, int))                                             \
	X(cuCtxCreate_v2, (void **, unsigned, int))                                            \
	X(cuModuleLoadData, (void **, const void *))                                           \
	X(cuModuleGetFunction, (void **, void *, const char *))                                \
	X(cuMemHostAlloc, (void **, size_t, unsigned))                                         \
	X(cuMemHostGetDevicePointer_v2, (ptr *, void *, unsigned))                             \
	X(cuLaunchKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
			   unsigned, void *, void **, void **))                                \
	X(cuStreamCreate, (void **, unsigned))                                                 \
	X(cuStreamQuery, (void *))
#define DECLARE(name, args) static int(*name) args;
DRIVER(DECLARE)

enum { ATTRIBUTE_CLOCK = 13, ATTRIBUTE_COMPUTE_MODE = 20, NOT_READY = 600, NON_BLOCKING = 1, MAPPED = 2 };

static int fail(struct shared *s, const char *what, int code) {
	snprintf(s->error, sizeof s->error, "%s: %d", what, code);
	return 1;
}
#define CU(call, ...)                                 \
	do {                                          \
		int code_ = call(__VA_ARGS__);          \
		if (code_)                            \
			return fail(s, #call, code_); \
	} while (0)

static uint64_t micros(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

// wanted waits for the next launch; 0 if the starter is gone.
static int wanted(struct shared *s) {
	struct pollfd in = {.fd = 0, .events = POLLIN};
	while (s->launch == s->done) {
		struct timespec nap = {0, 50000};
		if (poll(&in, 1, 0) > 0 && (in.revents & (POLLHUP | POLLERR | POLLIN)))
			return 0;
		nanosleep(&nap, NULL);
	}
	return 1;
}

int laxity_subject(int fd, const char *ptx) {
	struct shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (s == MAP_FAILED)
		return errno ? errno : 1;
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!library)
		return fail(s, "no libcuda.so.1", 0);
#define LOAD(name, args)                     \
	*(void **)&name = dlsym(library, #name); \
	if (!name)                           \
		return fail(s, "libcuda has no " #name, 0);
	DRIVER(LOAD)

	int device, clock_khz, mode;
	void *context, *module, *kernel, *stream, *host;
	ptr at;
	CU(cuInit, 0);
	CU(cuDeviceGet, &device, 0);
	CU(cuDeviceGetAttribute, &mode, ATTRIBUTE_COMPUTE_MODE, device);
	if (mode)
		return fail(s, "the compute mode is not the default", mode);
	CU(cuDeviceGetAttribute, &clock_khz, ATTRIBUTE_CLOCK, device);
	CU(cuCtxCreate_v2, &context, 0, device);
	CU(cuModuleLoadData, &module, ptx);
	CU(cuModuleGetFunction, &kernel, module, "spin");
	CU(cuStreamCreate, &stream, NON_BLOCKING);
	CU(cuMemHostAlloc, &host, 4096, MAPPED);
	memset(host, 0, 4096);
	CU(cuMemHostGetDevicePointer_v2, &at, host, 0);
	volatile uint32_t *beat = host, *stop = beat + 64;
	ptr stop_at = at + 256, ended = at + 512;
	for (s->ready = 1; wanted(s);) {
		uint64_t most = s->most, until = micros() + most, clocks = most * (uint64_t)clock_khz / 1000;
		void *args[] = {&stop_at, &at, &ended, &clocks};
		*beat = *stop = 0;
		CU(cuLaunchKernel, kernel, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL);
		int state;
		while ((state = cuStreamQuery(stream)) == NOT_READY) {
			s->beat = *beat;
			if (s->stop || micros() > until)
				*stop = 1;
		}
		s->beat = *beat;
		if (state) {
			fail(s, "the kernel ended with", state);
			s->wrong = 1;
		}
		s->done = s->done + 1;
	}
	return 0;
}
