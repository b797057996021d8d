// matmul: a GPU task that tells when each of its phases began and ended.
//
// It multiplies two n×n matrices of floats on one GPU with the plainest kernel
// there is, by CUDA's driver API, and prints a line of JSON for each phase:
// wall-clock time in seconds, to the microsecond. libcuda.so.1 is loaded at run
// time and the kernel is PTX text, so that building needs a C compiler only and
// the same binary runs on every NVIDIA GPU, and on the simulated one.
//
// Host memory is pageable, as in a plain program, in huge pages where the
// kernel has them: small ones would make most of a large task's input.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <getopt.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// ---- the kernel: c = a × b, one thread an element, four steps at a time

static const char ptx[] =
	".version 6.0\n"
	".target sm_50\n"
	".address_size 64\n"
	"\n"
	".visible .entry matmul(\n"
	"	.param .u64 param_a,\n"
	"	.param .u64 param_b,\n"
	"	.param .u64 param_c,\n"
	"	.param .u32 param_n\n"
	")\n"
	"{\n"
	"	.reg .pred %p<4>;\n"
	"	.reg .b32  %r<12>;\n"
	"	.reg .f32  %f<12>;\n"
	"	.reg .b64  %rd<16>;\n"
	"\n"
	"	ld.param.u64 %rd1, [param_a];\n"
	"	ld.param.u64 %rd2, [param_b];\n"
	"	ld.param.u64 %rd3, [param_c];\n"
	"	ld.param.u32 %r1, [param_n];\n"
	"\n"
	"	mov.u32 %r2, %ctaid.y;\n"
	"	mov.u32 %r3, %ntid.y;\n"
	"	mov.u32 %r4, %tid.y;\n"
	"	mad.lo.u32 %r5, %r2, %r3, %r4;\n" // row
	"	mov.u32 %r6, %ctaid.x;\n"
	"	mov.u32 %r7, %ntid.x;\n"
	"	mov.u32 %r8, %tid.x;\n"
	"	mad.lo.u32 %r9, %r6, %r7, %r8;\n" // column
	"	setp.ge.u32 %p1, %r5, %r1;\n"
	"	setp.ge.u32 %p2, %r9, %r1;\n"
	"	or.pred %p3, %p1, %p2;\n"
	"	@%p3 bra DONE;\n"
	"\n"
	"	cvta.to.global.u64 %rd1, %rd1;\n"
	"	cvta.to.global.u64 %rd2, %rd2;\n"
	"	cvta.to.global.u64 %rd3, %rd3;\n"
	"	mul.wide.u32 %rd4, %r5, %r1;\n" // row·n, 64 bits
	"	shl.b64 %rd5, %rd4, 2;\n"
	"	add.s64 %rd6, %rd1, %rd5;\n" // a's row
	"	mul.wide.u32 %rd7, %r9, 4;\n"
	"	add.s64 %rd8, %rd2, %rd7;\n" // b's column
	"	mul.wide.u32 %rd9, %r1, 4;\n" // bytes from row to row
	"	mov.f32 %f1, 0f00000000;\n"
	"	mov.u32 %r10, %r1;\n" // steps left
	"\n"
	"FOUR:\n"
	"	setp.lt.u32 %p1, %r10, 4;\n"
	"	@%p1 bra ONE;\n"
	"	add.s64 %rd10, %rd8, %rd9;\n"
	"	add.s64 %rd11, %rd10, %rd9;\n"
	"	add.s64 %rd12, %rd11, %rd9;\n"
	"	ld.global.f32 %f2, [%rd6];\n"
	"	ld.global.f32 %f3, [%rd8];\n"
	"	ld.global.f32 %f4, [%rd6+4];\n"
	"	ld.global.f32 %f5, [%rd10];\n"
	"	ld.global.f32 %f6, [%rd6+8];\n"
	"	ld.global.f32 %f7, [%rd11];\n"
	"	ld.global.f32 %f8, [%rd6+12];\n"
	"	ld.global.f32 %f9, [%rd12];\n"
	"	fma.rn.f32 %f1, %f2, %f3, %f1;\n"
	"	fma.rn.f32 %f1, %f4, %f5, %f1;\n"
	"	fma.rn.f32 %f1, %f6, %f7, %f1;\n"
	"	fma.rn.f32 %f1, %f8, %f9, %f1;\n"
	"	add.s64 %rd6, %rd6, 16;\n"
	"	add.s64 %rd8, %rd12, %rd9;\n"
	"	sub.u32 %r10, %r10, 4;\n"
	"	bra FOUR;\n"
	"\n"
	"ONE:\n"
	"	setp.eq.u32 %p1, %r10, 0;\n"
	"	@%p1 bra STORE;\n"
	"	ld.global.f32 %f2, [%rd6];\n"
	"	ld.global.f32 %f3, [%rd8];\n"
	"	fma.rn.f32 %f1, %f2, %f3, %f1;\n"
	"	add.s64 %rd6, %rd6, 4;\n"
	"	add.s64 %rd8, %rd8, %rd9;\n"
	"	sub.u32 %r10, %r10, 1;\n"
	"	bra ONE;\n"
	"\n"
	"STORE:\n"
	"	add.s64 %rd13, %rd3, %rd5;\n"
	"	add.s64 %rd14, %rd13, %rd7;\n"
	"	st.global.f32 [%rd14], %f1;\n"
	"\n"
	"DONE:\n"
	"	ret;\n"
	"}\n";

// ---- the driver API, as far as it is used

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef void *CUcontext, *CUmodule, *CUfunction, *CUstream;

#define DRIVER(X)                                                                                                   \
	X(cuInit, (unsigned))                                                                                       \
	X(cuDeviceGet, (CUdevice *, int))                                                                           \
	X(cuDeviceGetName, (char *, int, CUdevice))                                                                 \
	X(cuCtxCreate_v2, (CUcontext *, unsigned, CUdevice))                                                        \
	X(cuCtxDestroy_v2, (CUcontext))                                                                             \
	X(cuCtxSetCurrent, (CUcontext))                                                                             \
	X(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))                                                        \
	X(cuDevicePrimaryCtxRelease_v2, (CUdevice))                                                                 \
	X(cuModuleLoadData, (CUmodule *, const void *))                                                             \
	X(cuModuleGetFunction, (CUfunction *, CUmodule, const char *))                                              \
	X(cuMemAlloc_v2, (CUdeviceptr *, size_t))                                                                   \
	X(cuMemFree_v2, (CUdeviceptr))                                                                              \
	X(cuMemcpyHtoD_v2, (CUdeviceptr, const void *, size_t))                                                     \
	X(cuMemcpyDtoH_v2, (void *, CUdeviceptr, size_t))                                                           \
	X(cuLaunchKernel, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,        \
			   CUstream, void **, void **))                                                             \
	X(cuCtxSynchronize, (void))                                                                                 \
	X(cuGetErrorName, (CUresult, const char **))                                                                \
	X(cuGetErrorString, (CUresult, const char **))

#define DECLARE(name, args) static CUresult(*name) args;
DRIVER(DECLARE)

static void load_driver(void) {
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);
	if (!lib) {
		fprintf(stderr,
			"matmul: %s\nIs an NVIDIA driver installed, and given to this container (--gpus all)? "
			"For the simulated GPU set LD_LIBRARY_PATH to the folder of its libcuda.so.1.\n",
			dlerror());
		exit(1);
	}
#define LOAD(name, args)                                                                                            \
	if (!(name = (CUresult(*) args)dlsym(lib, #name))) {                                                        \
		fprintf(stderr, "matmul: libcuda.so.1 has no %s: the driver is too old\n", #name);                  \
		exit(1);                                                                                            \
	}
	DRIVER(LOAD)
}

// ---- options

static struct {
	long n, kernels, repeat, block, device, extra, processes, runs, more, more_device;
	double host, gap, hold, more_after;
	int host_busy, sync_each, resident, verify, init_only, context_only, primary, destroy;
} opt = {.more_device = -1, .n = 4096, .kernels = 2, .repeat = 1, .block = 16, .processes = 1, .runs = 1};

static const char usage[] =
	"usage: matmul [options]\n"
	"Multiplies n×n matrices on a GPU and prints its phases as lines of JSON.\n"
	"\n"
	"  --n N             matrices of N×N floats, 1–46340 (4096)\n"
	"  --kernels K       multiplications per task, 0 for none (2)\n"
	"  --host-seconds S  length of the host phase before the copy; filling the matrices counts (0)\n"
	"  --host-busy       spend it computing, not sleeping in short naps\n"
	"  --repeat R        tasks, one after another, in this process; 0: for ever (1)\n"
	"  --gap S           seconds without GPU work between two tasks (0)\n"
	"  --sync-each       wait for each kernel before the next launch\n"
	"  --resident        copy the matrices in before the first task only, and no result out\n"
	"  --device D        number of the GPU (0)\n"
	"  --block B         threads per block: B×B, 1–32 (16)\n"
	"  --alloc-extra M   hold M MiB more of GPU memory (0)\n"
	"  --more M          then hold M MiB besides: ask every 0.1 s until they are there (0)\n"
	"  --more-after S    seconds before it asks for them (0)\n"
	"  --more-device D   number of the GPU that they are on (that of --device)\n"
	"  --processes P     P processes, each with a context, do all of this (1)\n"
	"  --runs R          R processes, one after another, do all of this; 0: for ever (1)\n"
	"  --verify          check some elements of the result\n"
	"  --primary         use the device's primary context, like the CUDA runtime\n"
	"  --hold S          stay for S seconds after the last task, with the context (0)\n"
	"  --destroy         destroy the context after the last task, before --hold\n"
	"  --init-only       only call cuInit, like a check for availability\n"
	"  --context-only    only create the context (and --alloc-extra, --hold)\n"
	"  --help\n"
	"\n"
	"Environment: with LAXITY_BEGIN it waits for that file, which holds a moment in Unix seconds, and begins\n"
	"LAXITY_AFTER seconds after that moment; so tasks begin on time however long their containers take to start.\n"
	"Between two tasks it stands while the file LAXITY_REST is there.\n"
	"\n"
	"Events: start, init, context, holds, asks and has (--more), then for each task host_begin, host_end, copyin_begin, copyin_end,\n"
	"launch (the first), kernels_end, copyout_begin, copyout_end, then exit; error when a call fails.\n"
	"Exit status: 0 done, 1 a call failed or the result is wrong, 2 wrong usage.\n";

static void fail_usage(const char *format, ...) {
	va_list args;
	va_start(args, format);
	fputs("matmul: ", stderr);
	vfprintf(stderr, format, args);
	fputs("\nTry matmul --help.\n", stderr);
	va_end(args);
	exit(2);
}

static long integer(const char *name, const char *text, long least, long most) {
	char *end;
	long v = strtol(text, &end, 10);
	if (!*text || *end || v < least || v > most)
		fail_usage("--%s takes a number from %ld to %ld, not \"%s\"", name, least, most, text);
	return v;
}

static double duration(const char *name, const char *text) {
	char *end;
	double v = strtod(text, &end);
	if (!*text || *end || !(v >= 0 && v <= 1e6))
		fail_usage("--%s takes seconds from 0 to 1000000, not \"%s\"", name, text);
	return v;
}

static void parse(int argc, char **argv) {
	static const struct option longs[] = {
		{"n", 1, 0, 'n'},	      {"kernels", 1, 0, 'k'},	  {"host-seconds", 1, 0, 's'},
		{"host-busy", 0, 0, 'b'},     {"repeat", 1, 0, 'r'},	  {"gap", 1, 0, 'g'},
		{"sync-each", 0, 0, 'e'},     {"device", 1, 0, 'd'},	  {"block", 1, 0, 'B'},
		{"resident", 0, 0, 'S'},
		{"alloc-extra", 1, 0, 'x'},   {"verify", 0, 0, 'v'},	  {"primary", 0, 0, 'p'},
		{"more", 1, 0, 'm'},	      {"more-after", 1, 0, 'a'},	  {"more-device", 1, 0, 'M'},
		{"hold", 1, 0, 'H'},	      {"destroy", 0, 0, 'D'},	  {"init-only", 0, 0, 'i'},
		{"context-only", 0, 0, 'c'},  {"processes", 1, 0, 'P'},	  {"runs", 1, 0, 'R'},
		{"help", 0, 0, 'h'},	      {0, 0, 0, 0},
	};
	int c, at = 0, help = 0;
	while ((c = getopt_long(argc, argv, ":", longs, &at)) != -1) { // ":": it is silent about errors
		const char *name = longs[at].name;
		switch (c) {
		case 'n': opt.n = integer(name, optarg, 1, 46340); break;
		case 'k': opt.kernels = integer(name, optarg, 0, 1000000000); break;
		case 's': opt.host = duration(name, optarg); break;
		case 'b': opt.host_busy = 1; break;
		case 'r': opt.repeat = integer(name, optarg, 0, 1000000000); break;
		case 'g': opt.gap = duration(name, optarg); break;
		case 'e': opt.sync_each = 1; break;
		case 'S': opt.resident = 1; break;
		case 'd': opt.device = integer(name, optarg, 0, 1023); break;
		case 'B': opt.block = integer(name, optarg, 1, 32); break;
		case 'x': opt.extra = integer(name, optarg, 0, 1 << 20); break;
		case 'm': opt.more = integer(name, optarg, 0, 1 << 20); break;
		case 'a': opt.more_after = duration(name, optarg); break;
		case 'M': opt.more_device = integer(name, optarg, 0, 1023); break;
		case 'P': opt.processes = integer(name, optarg, 1, 4096); break;
		case 'R': opt.runs = integer(name, optarg, 0, 1000000000); break;
		case 'v': opt.verify = 1; break;
		case 'p': opt.primary = 1; break;
		case 'H': opt.hold = duration(name, optarg); break;
		case 'D': opt.destroy = 1; break;
		case 'i': opt.init_only = 1; break;
		case 'c': opt.context_only = 1; break;
		case 'h': help = 1; break;
		case ':': fail_usage("%s needs a value", argv[optind - 1]);
		default: fail_usage("no option \"%s\"", argv[optind - 1]);
		}
	}
	if (optind < argc)
		fail_usage("unexpected argument \"%s\"", argv[optind]);
	if (help) { // after all others, so that it says whether they are right
		fputs(usage, stdout);
		exit(0);
	}
}

// ---- the time line

static void event(const char *name, const char *format, ...) {
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	printf("{\"time\":%lld.%06ld,\"event\":\"%s\",\"pid\":%d", (long long)now.tv_sec, now.tv_nsec / 1000, name, getpid());
	if (format) {
		va_list args;
		va_start(args, format);
		vprintf(format, args);
		va_end(args);
	}
	puts("}");
	fflush(stdout);
}

static void check(CUresult r, const char *call) {
	const char *name = NULL, *text = NULL;
	if (!r)
		return;
	cuGetErrorName(r, &name);
	cuGetErrorString(r, &text);
	event("error", ",\"call\":\"%s\",\"result\":\"%s\",\"code\":%d", call, name ? name : "unknown", r);
	fprintf(stderr, "matmul: %s: %s (%d): %s\n", call, name ? name : "unknown", r, text ? text : "");
	exit(1);
}

#define CHECK(name, ...) check(name(__VA_ARGS__), #name)

static double now_of(clockid_t clock) {
	struct timespec t;
	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

// spend uses up seconds in naps, so short that a process which is frozen in
// between has hardly moved on: what a nap took beyond its length is not counted.
static void spend(double seconds, double nap, int busy) {
	if (busy) {
		double end = now_of(CLOCK_PROCESS_CPUTIME_ID) + seconds;
		while (now_of(CLOCK_PROCESS_CPUTIME_ID) < end) {
		}
		return;
	}
	while (seconds > 0) {
		double want = fmin(seconds, nap), begin = now_of(CLOCK_MONOTONIC);
		nanosleep(&(struct timespec){.tv_nsec = (long)(want * 1e9)}, NULL); // below a second
		seconds -= fmin(now_of(CLOCK_MONOTONIC) - begin, 2 * nap);
	}
}

// ---- the task

// Elements are multiples of 1/8 below 1, so that all sums are exact.
static float element(unsigned i, unsigned j) { return (float)((int)((i * 7 + j * 3) & 15) - 8) * 0.125f; }

// fill computes as many rows as differ, and copies the others, as fast as memory is.
static void fill(float *m, unsigned n, unsigned salt) {
	for (unsigned i = 0; i < n; i++) {
		float *row = m + (size_t)i * n;
		if (i >= 16) {
			memcpy(row, row - (size_t)16 * n, n * sizeof *row);
			continue;
		}
		for (unsigned j = 0; j < n; j++)
			row[j] = element(i + salt, j);
	}
}

static void verify(const float *c, unsigned n) {
	for (unsigned s = 0; s < 64; s++) {
		unsigned i = (unsigned)((uint64_t)s * 2654435761u % n), j = s == 63 ? n - 1 : (unsigned)((uint64_t)s * 40503u % n);
		double want = 0;
		for (unsigned k = 0; k < n; k++)
			want += (double)element(i, k) * element(k + 5, j);
		float got = c[(size_t)i * n + j];
		if (fabs(got - want) > 1e-3) {
			event("wrong", ",\"row\":%u,\"column\":%u,\"got\":%g,\"want\":%g", i, j, got, want);
			fprintf(stderr, "matmul: element (%u, %u) is %g, want %g\n", i, j, got, want);
			exit(1);
		}
	}
}

// checksum is FNV-1a over all elements: equal inputs must give it bit by bit.
static uint64_t checksum(const float *c, size_t count) {
	uint64_t sum = 14695981039346656037u;
	for (size_t i = 0; i < count; i++) {
		uint32_t bits;
		memcpy(&bits, &c[i], sizeof bits);
		sum = (sum ^ bits) * 1099511628211u;
	}
	return sum;
}

struct buffers {
	float *a, *b, *c;
	CUdeviceptr da, db, dc;
};

// prepare is the host phase and the copy to the GPU.
static void prepare(long number, struct buffers *m) {
	unsigned n = (unsigned)opt.n;
	size_t bytes = (size_t)n * n * sizeof(float);
	double begin = now_of(CLOCK_MONOTONIC);
	event("host_begin", ",\"task\":%ld", number);
	fill(m->a, n, 0);
	fill(m->b, n, 5);
	spend(opt.host - (now_of(CLOCK_MONOTONIC) - begin), 0.005, opt.host_busy);
	event("host_end", ",\"task\":%ld", number);

	event("copyin_begin", ",\"task\":%ld", number);
	CHECK(cuMemcpyHtoD_v2, m->da, m->a, bytes);
	CHECK(cuMemcpyHtoD_v2, m->db, m->b, bytes);
	event("copyin_end", ",\"task\":%ld", number);
}

static void run_task(long number, CUfunction function, struct buffers *m, int computes) {
	unsigned n = (unsigned)opt.n, blocks = (unsigned)((opt.n + opt.block - 1) / opt.block), block = (unsigned)opt.block;
	size_t bytes = (size_t)n * n * sizeof(float);
	if (!opt.resident || number == 0)
		prepare(number, m);

	void *params[] = {&m->da, &m->db, &m->dc, &n};
	for (long k = 0; k < opt.kernels; k++) {
		if (k == 0)
			event("launch", ",\"task\":%ld", number);
		CHECK(cuLaunchKernel, function, blocks, blocks, 1, block, block, 1, 0, NULL, params, NULL);
		if (opt.sync_each)
			CHECK(cuCtxSynchronize);
	}
	CHECK(cuCtxSynchronize);
	event("kernels_end", ",\"task\":%ld", number);
	if (opt.resident && !opt.verify)
		return;
	event("copyout_begin", ",\"task\":%ld", number);
	CHECK(cuMemcpyDtoH_v2, m->c, m->dc, bytes);
	event("copyout_end", ",\"task\":%ld", number);
	if (!opt.verify || !opt.kernels)
		return;
	if (computes)
		verify(m->c, n);
	event("verified", ",\"task\":%ld,\"computed\":%s,\"checksum\":\"%016llx\"", number, computes ? "true" : "false",
	      computes ? (unsigned long long)checksum(m->c, (size_t)n * n) : 0ULL);
}

// host_memory asks for huge pages; a kernel without them ignores it.
static float *host_memory(size_t bytes) {
	const size_t huge = 2 << 20;
	bytes = (bytes + huge - 1) & ~(huge - 1);
	void *memory = aligned_alloc(huge, bytes);
	if (!memory) {
		fprintf(stderr, "matmul: no host memory for three matrices of %zu MiB\n", bytes >> 20);
		exit(1);
	}
	if (bytes > huge)
		madvise(memory, bytes, MADV_HUGEPAGE);
	return memory;
}

static void allocate(struct buffers *m) {
	size_t bytes = (size_t)opt.n * (size_t)opt.n * sizeof(float);
	m->a = host_memory(bytes);
	m->b = host_memory(bytes);
	m->c = host_memory(bytes);
	CHECK(cuMemAlloc_v2, &m->da, bytes);
	CHECK(cuMemAlloc_v2, &m->db, bytes);
	CHECK(cuMemAlloc_v2, &m->dc, bytes);
}

// await_rest stands, with the context, while there is a file that tells it to rest.
static void await_rest(void) {
	const char *path = getenv("LAXITY_REST");
	while (path && !access(path, F_OK))
		nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
}

static void run_tasks(int computes) {
	CUmodule module;
	CUfunction function;
	struct buffers m = {0};
	CHECK(cuModuleLoadData, &module, ptx);
	CHECK(cuModuleGetFunction, &function, module, "matmul");
	allocate(&m);
	for (long i = 0; !opt.repeat || i < opt.repeat; i++) {
		if (i > 0)
			spend(opt.gap, 0.005, 0);
		await_rest();
		run_task(i, function, &m, computes);
	}
	CHECK(cuMemFree_v2, m.da);
	CHECK(cuMemFree_v2, m.db);
	CHECK(cuMemFree_v2, m.dc);
}

// await_begin waits for the moment at which the program is told to begin.
static void await_begin(void) {
	const char *path = getenv("LAXITY_BEGIN"), *after = getenv("LAXITY_AFTER");
	double at;
	FILE *f;
	if (!path)
		return;
	while (!(f = fopen(path, "r")))
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	if (fscanf(f, "%lf", &at) != 1)
		fail_usage("%s holds no time", path);
	fclose(f);
	at += after ? duration("LAXITY_AFTER", after) : 0;
	struct timespec t = {.tv_sec = (time_t)at, .tv_nsec = (long)((at - floor(at)) * 1e9)};
	while (clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &t, NULL)) {
	}
}

static void reap(void) {
	while (wait(NULL) > 0) {
	}
}

// multiply makes the other processes. The first one waits for them at its end.
static void multiply(void) {
	for (long i = 1; i < opt.processes; i++) {
		pid_t child = fork();
		if (child < 0) {
			perror("matmul: fork");
			exit(1);
		}
		if (child == 0)
			return;
	}
	if (opt.processes > 1)
		atexit(reap);
}

static void quit(int signal) { _exit(128 + signal); }

// run_again lets one process after another do the work, each a task of its own,
// and returns in those. The one that starts them must end when it is asked to:
// the kernel keeps signals without a handler from the first process of a
// container. They end with it, and it ends when one of them fails.
static void run_again(void) {
	pid_t self = getpid();
	if (opt.runs == 1)
		return;
	signal(SIGTERM, quit);
	signal(SIGINT, quit);
	for (long i = 0; !opt.runs || i < opt.runs; i++) {
		int status;
		pid_t child = fork();
		if (child < 0) {
			perror("matmul: fork");
			exit(1);
		}
		if (child == 0) {
			signal(SIGTERM, SIG_DFL);
			signal(SIGINT, SIG_DFL);
			if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != self)
				_exit(1);
			return;
		}
		while (waitpid(child, &status, 0) < 0) {
		}
		if (status)
			exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
	}
	exit(0);
}

// ---- memory that is asked for until it is there (P5: a program that does not give up)

static CUcontext more_context;

// make_more makes the context on the other GPU, if there is another one.
static void make_more(CUcontext context) {
	CUdevice device;
	if (opt.more_device < 0 || opt.more_device == opt.device) {
		more_context = context;
		return;
	}
	CHECK(cuDeviceGet, &device, (int)opt.more_device);
	CHECK(cuCtxCreate_v2, &more_context, 0, device);
	CHECK(cuCtxSetCurrent, context);
}

static void get_more(CUcontext context) {
	CUdeviceptr more;
	long refused = 0;
	spend(opt.more_after, 0.05, 0);
	CHECK(cuCtxSetCurrent, more_context);
	event("asks", NULL);
	while (cuMemAlloc_v2(&more, (size_t)opt.more << 20)) { // out of memory
		refused++;
		spend(0.1, 0.1, 0);
	}
	event("has", ",\"refused\":%ld", refused);
	CHECK(cuCtxSetCurrent, context);
}

int main(int argc, char **argv) {
	parse(argc, argv);
	await_begin();
	run_again();
	multiply();
	event("start", ",\"n\":%ld,\"kernels\":%ld", opt.n, opt.kernels);
	load_driver();
	event("init_begin", NULL);
	CHECK(cuInit, 0);
	event("init", NULL);
	if (!opt.init_only) {
		CUdevice device;
		CUcontext context;
		CUdeviceptr extra;
		char name[256];
		CHECK(cuDeviceGet, &device, (int)opt.device);
		CHECK(cuDeviceGetName, name, sizeof name, device);
		if (opt.primary) {
			CHECK(cuDevicePrimaryCtxRetain, &context, device);
			CHECK(cuCtxSetCurrent, context);
		} else {
			CHECK(cuCtxCreate_v2, &context, 0, device);
		}
		event("context", ",\"gpu\":\"%s\"", name);
		if (opt.more)
			make_more(context);
		if (opt.extra) {
			CHECK(cuMemAlloc_v2, &extra, (size_t)opt.extra << 20);
			event("holds", NULL);
		}
		if (opt.more)
			get_more(context);
		if (!opt.context_only) // a simulated GPU's memory has no content to verify
			run_tasks(strncmp(name, "Simulated", 9) != 0);
		if (opt.destroy) {
			if (opt.primary)
				CHECK(cuDevicePrimaryCtxRelease_v2, device);
			else
				CHECK(cuCtxDestroy_v2, context);
			event("destroyed", NULL);
		}
	}
	spend(opt.hold, 0.5, 0); // many may hold at once: they are to cost nothing
	event("exit", NULL);
	return 0;
}
