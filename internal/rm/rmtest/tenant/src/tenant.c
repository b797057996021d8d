// A small tenant of a GPU, for tests on a real one.
//
//   tenant SHARED spin|steps [contexts] [seconds] [churn] [late]
//
// It calls the driver API by dlopen, and needs no toolkit. SHARED is a file that it and
// the test map: see struct shared. With `spin`, one kernel on all multiprocessors beats
// a counter in host memory until the test says stop. With `steps`, short kernels, each
// of which adds 1 to a counter on the device, follow one another. The first context
// computes; further ones only exist. Churn is how often it takes memory and gives it back
// before it makes the second. Late (1) means that it waits before its first call, as a program
// that is older than its context, until the test says begin. It ends by itself after that many seconds (60).
// The result is right if every call returned 0 and, with `steps`, the counter on the
// device is the number of launches. Contexts are on all GPUs that it sees, in turn.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

// PTX is given by the compiler's caller: the text of internal/rm/ptx.
static const char ptx[] = PTX;

// shared is what the test and the tenant tell each other.
struct shared {
	_Atomic uint32_t ready;  // the kernel has been launched
	_Atomic uint32_t stop;   // set by the test: 1 end the kernel, 2 exit(), 3 _exit() beside it
	_Atomic uint32_t beat;   // copied from the GPU's counter without pause
	_Atomic uint32_t result; // 1 right, 2 wrong
	_Atomic uint32_t steps;  // launches
	_Atomic uint32_t begin;  // set by the test
	char error[104];
};

typedef uint64_t ptr;
#define DRIVER(X)                                                                              \
	X(cuInit, (unsigned))                                                                  \
	X(cuDeviceGetCount, (int *))                                                           \
	X(cuDeviceGet, (int *, int))                                                           \
	X(cuDeviceGetAttribute, (int *, int, int))                                             \
	X(cuCtxCreate_v2, (void **, unsigned, int))                                            \
	X(cuCtxSetCurrent, (void *))                                                           \
	X(cuModuleLoadData, (void **, const void *))                                           \
	X(cuModuleGetFunction, (void **, void *, const char *))                                \
	X(cuMemAlloc_v2, (ptr *, size_t))                                                      \
	X(cuMemFree_v2, (ptr))                                                                 \
	X(cuMemsetD32_v2, (ptr, unsigned, size_t))                                             \
	X(cuMemcpyDtoH_v2, (void *, ptr, size_t))                                              \
	X(cuMemHostAlloc, (void **, size_t, unsigned))                                         \
	X(cuMemHostGetDevicePointer_v2, (ptr *, void *, unsigned))                             \
	X(cuLaunchKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
			   unsigned, void *, void **, void **))                                \
	X(cuCtxSynchronize, (void))                                                            \
	X(cuStreamCreate, (void **, unsigned))                                                 \
	X(cuStreamQuery, (void *))                                                             \
	X(cuStreamSynchronize, (void *))
#define DECLARE(name, args) static int(*name) args;
DRIVER(DECLARE)

static struct shared *shared;

static void fail(const char *what, int code) {
	snprintf(shared->error, sizeof shared->error, "%s: %d", what, code);
	shared->result = 2;
	fprintf(stderr, "tenant: %s: %d\n", what, code);
	_exit(1);
}
#define CU(call, ...)                        \
	do {                                 \
		int code_ = call(__VA_ARGS__); \
		if (code_)                   \
			fail(#call, code_);  \
	} while (0)

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
	if (argc < 3)
		return 2;
	int fd = open(argv[1], O_RDWR | O_CLOEXEC);
	shared = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (shared == MAP_FAILED)
		return 2;
	int spin = !strcmp(argv[2], "spin"), contexts = argc > 3 ? atoi(argv[3]) : 1;
	double until = now() + (argc > 4 ? atof(argv[4]) : 60);

	void *lib = dlopen("libcuda.so.1", RTLD_NOW);
	if (!lib)
		fail("no libcuda.so.1", 0);
#define LOAD(name, args)                  \
	*(void **)&name = dlsym(lib, #name); \
	if (!name)                        \
		fail("libcuda has no " #name, 0);
	DRIVER(LOAD)

	int device, devices, processors, clock_khz, churn = argc > 5 ? atoi(argv[5]) : 0;
	while (argc > 6 && atoi(argv[6]) && !shared->begin)
		usleep(1000);
	ptr at, count;
	void *first = NULL, *context, *module, *kernel, *stream, *host;
	CU(cuInit, 0);
	CU(cuDeviceGetCount, &devices);
	CU(cuDeviceGet, &device, 0);
	CU(cuDeviceGetAttribute, &processors, 16, device); // multiprocessors
	CU(cuDeviceGetAttribute, &clock_khz, 13, device);
	for (int i = 0; i < contexts; i++) {
		for (int j = 0; i == 1 && j < churn; j++) {
			CU(cuMemAlloc_v2, &count, 3 << 20);
			CU(cuMemFree_v2, count);
		}
		CU(cuDeviceGet, &device, i % devices);
		CU(cuCtxCreate_v2, &context, 0, device);
		first = first ? first : context;
	}
	CU(cuCtxSetCurrent, first);
	CU(cuModuleLoadData, &module, ptx);
	CU(cuModuleGetFunction, &kernel, module, spin ? "spin" : "step");
	CU(cuStreamCreate, &stream, 1); // non-blocking
	CU(cuMemHostAlloc, &host, 4096, 2); // mapped
	memset(host, 0, 4096);
	volatile uint32_t *beat = host, *stop = beat + 64;
	CU(cuMemHostGetDevicePointer_v2, &at, host, 0);
	ptr stop_at = at + 256;
	CU(cuMemAlloc_v2, &count, 4096);
	CU(cuMemsetD32_v2, count, 0, 1024);

	// The kernel ends by itself, whatever becomes of the test.
	uint64_t clocks = spin ? (uint64_t)((until - now()) * 1000 * clock_khz) : (uint64_t)clock_khz / 5;
	void *spin_args[] = {&stop_at, &at, &count, &clocks}, *step_args[] = {&count, &at, &clocks};
	uint32_t launched = 0;
	do {
		CU(cuLaunchKernel, kernel, (unsigned)processors, 1, 1, 128, 1, 1, 0, stream, spin ? spin_args : step_args, NULL);
		shared->steps = ++launched;
		shared->ready = 1;
		for (;;) { // the host side runs on, whatever happens on the GPU
			shared->beat = *beat;
			if (shared->stop == 2)
				exit(0);
			if (shared->stop == 3)
				_exit(0);
			if (shared->stop || now() > until)
				*stop = 1;
			int state = cuStreamQuery(stream);
			if (state == 0)
				break;
			if (state != 600) // not ready
				fail("the kernel ended with", state);
		}
	} while (!spin && !*stop);
	CU(cuStreamSynchronize, stream);
	uint32_t counted = launched;
	if (!spin)
		CU(cuMemcpyDtoH_v2, &counted, count, sizeof counted);
	shared->beat = *beat;
	if (counted != launched)
		fail("steps that are missing", (int)(launched - counted));
	shared->result = 1;
	return 0;
}
