// beats: kernels that show from outside how far they are.
//
//   beats SHARED MIB
//
// SHARED is a file that this program and who started it map: see struct shared. It takes
// so much device memory besides. It loads libcuda.so.1 at run time, and needs no toolkit.
//
// On a real GPU a kernel is a fixed amount of work on all multiprocessors. Its first thread
// writes a counter straight into SHARED, so that it is seen also while this program is
// paused. Each result is compared with what a CPU computes. A simulated GPU's kernels have no
// content: there the counter is that of the kernels that have ended.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

// PTX is given by the compiler's caller: work.ptx.
static const char ptx[] = PTX;

enum { FINISH = 1, EXIT, EXIT_AT_ONCE, CRASH, DESTROY }; // shared.stop

struct shared {
	_Atomic uint32_t ready;  // everything is loaded
	_Atomic uint32_t stop;   // how to end; FINISH: after the kernel that runs
	_Atomic uint32_t beat;   // moves while a kernel runs
	_Atomic uint32_t result; // 1 all were right, 2 not
	_Atomic uint32_t done;   // kernels that have ended
	_Atomic uint32_t launch; // kernels that are wanted
	_Atomic uint32_t micros; // how long the next one is to take alone
	_Atomic uint32_t direct; // the GPU itself writes beat
	_Atomic uint32_t launched;
	// Nanoseconds since boot: when this program began, had a context, and its first kernel's end.
	_Atomic uint64_t began, context, first;
	char error[64];
};

typedef uint64_t ptr;
#define DRIVER(X)                                                                              \
	X(cuInit, (unsigned))                                                                  \
	X(cuDeviceGet, (int *, int))                                                           \
	X(cuDeviceGetAttribute, (int *, int, int))                                             \
	X(cuCtxCreate_v2, (void **, unsigned, int))                                            \
	X(cuCtxDestroy_v2, (void *))                                                           \
	X(cuModuleLoadData, (void **, const void *))                                           \
	X(cuModuleGetFunction, (void **, void *, const char *))                                \
	X(cuMemAlloc_v2, (ptr *, size_t))                                                      \
	X(cuMemcpyDtoH_v2, (void *, ptr, size_t))                                              \
	X(cuLaunchKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
			   unsigned, void *, void **, void **))                                \
	X(cuStreamCreate, (void **, unsigned))                                                 \
	X(cuStreamQuery, (void *))
// A simulated GPU has none of these.
#define HOST_MEMORY(X)                                      \
	X(cuMemHostRegister_v2, (void *, size_t, unsigned)) \
	X(cuMemHostAlloc, (void **, size_t, unsigned))      \
	X(cuMemHostGetDevicePointer_v2, (ptr *, void *, unsigned))
#define DECLARE(name, args) static int(*name) args;
DRIVER(DECLARE)
HOST_MEMORY(DECLARE)

enum { MULTIPROCESSORS = 16, NOT_READY = 600, NON_BLOCKING = 1, MAPPED = 2, THREADS = 128 };

static struct shared *shared;
static void *context;

static void fail(const char *what, int code) {
	snprintf(shared->error, sizeof shared->error, "%s: %d", what, code);
	shared->result = 2;
	fprintf(stderr, "beats: %s: %d\n", what, code);
	_exit(1);
}
#define CU(call, ...)                          \
	do {                                   \
		int code_ = call(__VA_ARGS__); \
		if (code_)                     \
			fail(#call, code_);    \
	} while (0)

static uint64_t now(void) {
	struct timespec t;
	clock_gettime(CLOCK_BOOTTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void nap(long micros) { nanosleep(&(struct timespec){.tv_nsec = micros * 1000}, NULL); }

// A container's first process dies of no signal that it does not handle.
static void on_term(int signal) {
	(void)signal;
	shared->stop = EXIT;
}

static void end_if_told(void) {
	switch (shared->stop) {
	case EXIT:
		exit(0);
	case EXIT_AT_ONCE:
		_exit(0);
	case CRASH:
		__builtin_trap();
	case DESTROY:
		CU(cuCtxDestroy_v2, context);
		_exit(0);
	}
}

// What a real kernel works with.
static void *kernel, *stream;
static ptr out, beat_at;
static volatile uint32_t *beat; // where the GPU writes it
static uint32_t *results;
static int processors;

static void await(void) {
	int code;
	while ((code = cuStreamQuery(stream)) == NOT_READY) {
		if (beat && !shared->direct)
			shared->beat = *beat;
		else
			nap(beat ? 20 : 100);
		end_if_told();
	}
	if (code)
		fail("the kernel ended with", code);
}

static void launch(uint32_t steps) {
	void *args[] = {&out, &beat_at, &steps};
	CU(cuLaunchKernel, kernel, (unsigned)processors, 1, 1, THREADS, 1, 1, 0, stream, args, NULL);
	shared->launched++;
	await();
}

// check compares every thread's result: so many steps are one multiplication and addition.
static void check(uint32_t steps) {
	uint32_t a = 1, c = 0, step_a = 1664525, step_c = 1013904223, n = (uint32_t)processors * THREADS;
	for (uint32_t left = steps; left; left >>= 1) {
		if (left & 1) {
			c = step_a * c + step_c;
			a *= step_a;
		}
		step_c *= step_a + 1;
		step_a *= step_a;
	}
	CU(cuMemcpyDtoH_v2, results, out, n * sizeof *results);
	for (uint32_t i = 0; i < n; i++)
		if (results[i] != a * i + c)
			fail("a wrong result, of thread", (int)i);
}

static void map_beat(void) {
	void *host;
	if (!cuMemHostRegister_v2(shared, 4096, MAPPED) && !cuMemHostGetDevicePointer_v2(&beat_at, shared, 0)) {
		beat = (volatile uint32_t *)&shared->beat;
		beat_at += offsetof(struct shared, beat);
		shared->direct = 1;
		return;
	}
	CU(cuMemHostAlloc, &host, 4096, MAPPED);
	CU(cuMemHostGetDevicePointer_v2, &beat_at, host, 0);
	beat = host;
}

// measure returns how many steps a microsecond a kernel does alone: the most of some short ones,
// because others may be beside it.
static double measure(void) {
	const uint32_t steps = 1 << 16;
	double most = 0;
	for (int i = 0; i < 5; i++) {
		uint64_t began = now();
		launch(steps);
		double rate = steps * 1e3 / (double)(now() - began);
		most = rate > most ? rate : most;
	}
	return most;
}

int main(int argc, char **argv) {
	uint64_t began = now();
	int fd = argc < 3 ? -1 : open(argv[1], O_RDWR | O_CLOEXEC), device;
	shared = fd < 0 ? MAP_FAILED : mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (shared == MAP_FAILED)
		return 2;
	shared->began = began;
	signal(SIGTERM, on_term);
	void *lib = dlopen("libcuda.so.1", RTLD_NOW), *module;
	if (!lib)
		fail("no libcuda.so.1", 0);
#define LOAD(name, args) *(void **)&name = dlsym(lib, #name);
#define NEED(name, args) \
	LOAD(name, args) \
	if (!name)       \
		fail("libcuda has no " #name, 0);
	DRIVER(NEED)
	HOST_MEMORY(LOAD)
	int real = cuMemHostAlloc && cuMemHostRegister_v2 && cuMemHostGetDevicePointer_v2;

	CU(cuInit, 0);
	CU(cuDeviceGet, &device, 0);
	CU(cuDeviceGetAttribute, &processors, MULTIPROCESSORS, device);
	CU(cuCtxCreate_v2, &context, 0, device);
	shared->context = now();
	CU(cuModuleLoadData, &module, ptx);
	CU(cuModuleGetFunction, &kernel, module, "work");
	CU(cuStreamCreate, &stream, NON_BLOCKING);
	CU(cuMemAlloc_v2, &out, (size_t)processors * THREADS * sizeof *results);
	ptr more;
	if (atoi(argv[2]) > 0)
		CU(cuMemAlloc_v2, &more, (size_t)atoi(argv[2]) << 20);
	results = calloc((size_t)processors * THREADS, sizeof *results);
	double rate = 0;
	if (real) {
		map_beat();
		rate = measure();
	}
	for (shared->ready = 1; shared->stop != FINISH;) {
		end_if_told();
		if (shared->done >= shared->launch) {
			nap(200);
			continue;
		}
		uint32_t micros = shared->micros;
		if (real) {
			double wanted = rate * micros;
			uint32_t steps = wanted < 4e9 ? (uint32_t)wanted : 4000000000u;
			launch(steps);
			check(steps);
		} else {
			char seconds[32];
			snprintf(seconds, sizeof seconds, "%.6f", micros / 1e6);
			setenv("LAXITY_SIM_KERNEL_SECONDS", seconds, 1);
			launch(1);
			shared->beat++;
		}
		if (!shared->done++)
			shared->first = now();
	}
	shared->result = 1;
	return 0;
}
