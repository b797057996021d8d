// A CUDA program of one of many kinds, which checks its own result.
//
//   animal KIND [name=value ...]
//
// It calls the driver API by dlopen, so that one binary runs on every NVIDIA GPU and
// on the simulated one, whose memory has no content. The work is a linear congruential
// generator that every element of a buffer runs for `iters` steps, `kernels` times; the
// right result is computed on the host by jumping ahead.
//
// The result goes to the file that ZOO_OUT names, one line: "right ..." or "wrong ...",
// and before it "conts N", see finish.
// Exit status: 0 right, 3 wrong, 4 a CUDA call failed, 5 out of memory; a kind that is
// meant to crash crashes.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char ptx[] =
	".version 6.0\n.target sm_50\n.address_size 64\n"
	".visible .entry lcg(.param .u64 at, .param .u32 count, .param .u32 iters)\n"
	"{\n"
	"	.reg .pred %p<3>;\n	.reg .b32 %r<10>;\n	.reg .b64 %rd<5>;\n"
	"	ld.param.u64 %rd1, [at];\n	ld.param.u32 %r1, [count];\n	ld.param.u32 %r2, [iters];\n"
	"	mov.u32 %r3, %ctaid.x;\n	mov.u32 %r4, %ntid.x;\n	mov.u32 %r5, %tid.x;\n"
	"	mad.lo.u32 %r6, %r3, %r4, %r5;\n"
	"	setp.ge.u32 %p1, %r6, %r1;\n	@%p1 bra DONE;\n"
	"	cvta.to.global.u64 %rd1, %rd1;\n"
	"	mul.wide.u32 %rd2, %r6, 4;\n	add.s64 %rd3, %rd1, %rd2;\n"
	"	ld.global.u32 %r7, [%rd3];\n"
	"LOOP:\n"
	"	setp.eq.u32 %p2, %r2, 0;\n	@%p2 bra STORE;\n"
	"	mad.lo.u32 %r7, %r7, 1664525, 1013904223;\n"
	"	sub.u32 %r2, %r2, 1;\n	bra LOOP;\n"
	"STORE:\n	st.global.u32 [%rd3], %r7;\n"
	"DONE:\n	ret;\n}\n";

typedef uint64_t ptr;

#define DRIVER(X)                                                                                  \
	X(cuInit, (unsigned))                                                                      \
	X(cuDeviceGet, (int *, int))                                                               \
	X(cuDeviceGetName, (char *, int, int))                                                     \
	X(cuCtxCreate_v2, (void **, unsigned, int))                                                \
	X(cuCtxDestroy_v2, (void *))                                                               \
	X(cuCtxSetCurrent, (void *))                                                               \
	X(cuDevicePrimaryCtxRetain, (void **, int))                                                \
	X(cuDevicePrimaryCtxRelease_v2, (int))                                                     \
	X(cuModuleLoadData, (void **, const void *))                                               \
	X(cuModuleGetFunction, (void **, void *, const char *))                                    \
	X(cuMemAlloc_v2, (ptr *, size_t))                                                          \
	X(cuMemFree_v2, (ptr))                                                                     \
	X(cuMemAllocAsync, (ptr *, size_t, void *))                                                \
	X(cuMemFreeAsync, (ptr, void *))                                                           \
	X(cuMemcpyHtoD_v2, (ptr, const void *, size_t))                                            \
	X(cuMemcpyDtoH_v2, (void *, ptr, size_t))                                                  \
	X(cuLaunchKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,     \
			   unsigned, void *, void **, void **))                                    \
	X(cuCtxSynchronize, (void))                                                                \
	X(cuStreamCreate, (void **, unsigned))                                                     \
	X(cuStreamSynchronize, (void *))                                                           \
	X(cuStreamDestroy_v2, (void *))                                                            \
	X(cuEventCreate, (void **, unsigned))                                                      \
	X(cuEventRecord, (void *, void *))                                                         \
	X(cuEventSynchronize, (void *))                                                            \
	X(cuEventDestroy_v2, (void *))

#define DECLARE(name, args) static int(*name) args;
DRIVER(DECLARE)

static struct {
	long n, iters, kernels, processes, streams, requests, every_ms, load_ms, init_ms, host_ms, seed;
	const char *library;
} opt = {.n = 1 << 18, .iters = 1000000, .kernels = 8, .processes = 3, .streams = 4, .requests = 40, .every_ms = 20};

static char **arguments;
static int simulated; // device memory has no content
static int device;

// ---- saying what came of it

static void say(const char *format, ...) {
	char line[512];
	va_list args;
	va_start(args, format);
	int n = vsnprintf(line, sizeof line - 1, format, args);
	va_end(args);
	if (n > (int)sizeof line - 2)
		n = sizeof line - 2;
	line[n++] = '\n';
	const char *path = getenv("ZOO_OUT");
	int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : 1;
	for (int at = 0; fd >= 0 && at < n;) {
		ssize_t w = write(fd, line + at, (size_t)(n - at));
		if (w < 0 && errno != EINTR)
			break;
		if (w > 0)
			at += (int)w;
	}
	if (path && fd >= 0)
		close(fd);
}

static volatile sig_atomic_t caught[NSIG];
static void catch(int number) { caught[number]++; }

// finish ends the process. Where ZOO_CONTS is set, it says how often somebody let the
// process go on: nobody had a right to stop it.
static void finish(int code) {
	if (caught[SIGCONT] && getenv("ZOO_CONTS"))
		say("conts %d", (int)caught[SIGCONT]);
	fflush(NULL);
	_exit(code); // no destructors: a fork shares them
}

static void check(int result, const char *call) {
	if (!result)
		return;
	say("wrong: %s returned %d", call, result);
	finish(result == 2 ? 5 : 4);
}
#define CU(call, ...) check(call(__VA_ARGS__), #call)

static void nap(long ms) { // whole, whatever signals come
	struct timespec left = {ms / 1000, ms % 1000 * 1000000};
	while (nanosleep(&left, &left) < 0 && errno == EINTR)
		;
}

// compute keeps the processor busy, as a host that fills its matrices does.
static void compute(long ms) {
	struct timespec t;
	volatile double x = 1;
	clock_gettime(CLOCK_MONOTONIC, &t);
	long long end = t.tv_sec * 1000LL + t.tv_nsec / 1000000 + ms;
	do {
		for (int i = 0; i < 20000; i++)
			x = x * 1.0000001 + 1e-9;
		clock_gettime(CLOCK_MONOTONIC, &t);
	} while (t.tv_sec * 1000LL + t.tv_nsec / 1000000 < end);
}

// ---- the driver

static void load(const char *library) {
	void *lib = dlopen(library, RTLD_NOW);
	if (!lib) {
		say("wrong: %s", dlerror());
		finish(4);
	}
#define LOAD(name, args)                                                                           \
	if (!(name = (int(*) args)dlsym(lib, #name))) {                                            \
		say("wrong: no %s", #name);                                                        \
		finish(4);                                                                         \
	}
	DRIVER(LOAD)
}

static void begin(void) {
	char name[128] = "";
	load(opt.library ? opt.library : "libcuda.so.1");
	nap(opt.load_ms);
	CU(cuInit, 0);
	CU(cuDeviceGet, &device, 0);
	CU(cuDeviceGetName, name, sizeof name, device);
	simulated = !strncmp(name, "Simulated", 9);
	nap(opt.init_ms);
}

static void *new_context(int primary) {
	void *context = NULL;
	if (primary)
		CU(cuDevicePrimaryCtxRetain, &context, device);
	else
		CU(cuCtxCreate_v2, &context, 0, device);
	CU(cuCtxSetCurrent, context);
	return context;
}

static void *kernel(void) {
	void *module, *function;
	CU(cuModuleLoadData, &module, ptx);
	CU(cuModuleGetFunction, &function, module, "lcg");
	return function;
}

static void launch(void *function, ptr at, void *stream) {
	unsigned n = (unsigned)opt.n, iters = (unsigned)opt.iters;
	void *params[] = {&at, &n, &iters};
	CU(cuLaunchKernel, function, (n + 255) / 256, 1, 1, 256, 1, 1, 0, stream, params, NULL);
}

// jump returns what a start value becomes after so many steps.
static void jump(uint64_t steps, uint32_t *mul, uint32_t *add) {
	uint32_t a = 1664525, c = 1013904223, m = 1, p = 0;
	for (; steps; steps >>= 1) {
		if (steps & 1) {
			m *= a;
			p = p * a + c;
		}
		c *= a + 1;
		a *= a;
	}
	*mul = m, *add = p;
}

static uint32_t start_value(long i) { return (uint32_t)(i * 2654435761u + (uint32_t)opt.seed); }

// wrong_elements compares a buffer with what so many kernels make of it.
static long wrong_elements(const uint32_t *got, long kernels) {
	uint32_t mul, add;
	long wrong = 0;
	jump((uint64_t)opt.iters * (uint64_t)kernels, &mul, &add);
	for (long i = 0; i < opt.n; i++)
		wrong += got[i] != (simulated ? 0 : start_value(i) * mul + add);
	return wrong;
}

static uint32_t *filled(void) {
	uint32_t *host = malloc((size_t)opt.n * 4);
	for (long i = 0; host && i < opt.n; i++)
		host[i] = start_value(i);
	if (!host)
		finish(4);
	return host;
}

static ptr buffer(const uint32_t *host) {
	ptr at;
	CU(cuMemAlloc_v2, &at, (size_t)opt.n * 4);
	CU(cuMemcpyHtoD_v2, at, host, (size_t)opt.n * 4);
	return at;
}

// work is one task on the current context: copy in, kernels, copy out, check.
static long work(void) {
	uint32_t *host = filled();
	if (opt.host_ms)
		compute(opt.host_ms);
	void *function = kernel();
	ptr at = buffer(host);
	for (long k = 0; k < opt.kernels; k++) {
		launch(function, at, NULL);
		if (k % 2)
			CU(cuCtxSynchronize);
	}
	CU(cuCtxSynchronize);
	CU(cuMemcpyDtoH_v2, host, at, (size_t)opt.n * 4);
	CU(cuMemFree_v2, at);
	long wrong = wrong_elements(host, opt.kernels);
	free(host);
	return wrong;
}

// conclude says the result of the whole and ends.
static void conclude(long wrong, long done) {
	if (wrong)
		say("wrong: %ld of %ld", wrong, done);
	else
		say("right %ld", done);
	finish(wrong ? 3 : 0);
}

// ---- children

// reap waits for a child and returns 0 if it ended with status 0.
static int reap(pid_t pid) {
	int status;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return 1;
	return !(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// again runs this program as another kind, with the same settings.
static pid_t again(const char *kind) {
	extern char **environ;
	char *args[64];
	int n = 0;
	pid_t pid;
	args[n++] = arguments[0];
	args[n++] = (char *)kind;
	for (char **a = arguments + 2; *a && n < 63; a++)
		args[n++] = *a;
	args[n] = NULL;
	return posix_spawn(&pid, "/proc/self/exe", NULL, NULL, args, environ) ? -1 : pid;
}

// ---- the kinds

static void plain(void) {
	begin();
	void *context = new_context(0);
	long wrong = work();
	CU(cuCtxDestroy_v2, context);
	conclude(wrong, opt.n);
}

// runtime does what the CUDA runtime does, with a host phase between the context and
// the first allocation.
static void runtime(void) {
	begin();
	new_context(1);
	long wrong = work();
	CU(cuDevicePrimaryCtxRelease_v2, device);
	conclude(wrong, opt.n);
}

// child is plain without a word: its parent says the result.
static void child(void) {
	begin();
	new_context(1);
	finish(work() ? 3 : 0);
}

static void streams(void) {
	begin();
	new_context(1);
	void *function = kernel(), *stream[16], *event[16];
	uint32_t *host = filled();
	ptr at[16];
	long wrong = 0;
	if (opt.streams > 16)
		opt.streams = 16;
	for (long s = 0; s < opt.streams; s++) {
		CU(cuStreamCreate, &stream[s], 1);
		CU(cuEventCreate, &event[s], 2);
		at[s] = buffer(host);
	}
	// A copy from pageable memory may return before the last part of it is on the GPU, and
	// these streams do not wait for it.
	CU(cuCtxSynchronize);
	for (long k = 0; k < opt.kernels; k++)
		for (long s = 0; s < opt.streams; s++)
			launch(function, at[s], stream[s]);
	for (long s = 0; s < opt.streams; s++) {
		CU(cuEventRecord, event[s], stream[s]);
		CU(cuEventSynchronize, event[s]);
		CU(cuStreamSynchronize, stream[s]);
		CU(cuMemcpyDtoH_v2, host, at[s], (size_t)opt.n * 4);
		wrong += wrong_elements(host, opt.kernels);
		CU(cuMemFree_v2, at[s]);
		CU(cuEventDestroy_v2, event[s]);
		CU(cuStreamDestroy_v2, stream[s]);
	}
	conclude(wrong, opt.n * opt.streams);
}

static void *in_own_context(void *wrong) {
	void *context = new_context(0);
	*(long *)wrong = work();
	CU(cuCtxDestroy_v2, context);
	return NULL;
}

static void contexts(void) {
	pthread_t thread[8];
	long wrong[8] = {0}, sum = 0, count = opt.processes < 8 ? opt.processes : 8;
	begin();
	for (long i = 0; i < count; i++)
		pthread_create(&thread[i], NULL, in_own_context, &wrong[i]);
	for (long i = 0; i < count; i++) {
		pthread_join(thread[i], NULL);
		sum += wrong[i];
	}
	conclude(sum, opt.n * count);
}

static void *shared;

// churn allocates and frees from several threads at once, by two calls.
static void *churn_thread(void *seed) {
	unsigned random = (unsigned)(uintptr_t)seed;
	void *stream;
	CU(cuCtxSetCurrent, shared);
	CU(cuStreamCreate, &stream, 1);
	for (long i = 0; i < opt.requests; i++) {
		ptr at[4];
		int count = 1 + (int)(rand_r(&random) % 4), async = rand_r(&random) % 2;
		for (int k = 0; k < count; k++) {
			size_t size = (size_t)(1 + rand_r(&random) % 64) << 18;
			if (async)
				CU(cuMemAllocAsync, &at[k], size, stream);
			else
				CU(cuMemAlloc_v2, &at[k], size);
		}
		for (int k = 0; k < count; k++)
			if (async)
				CU(cuMemFreeAsync, at[k], stream);
			else
				CU(cuMemFree_v2, at[k]);
		CU(cuStreamSynchronize, stream);
	}
	CU(cuStreamDestroy_v2, stream);
	return NULL;
}

static void churn(void) {
	pthread_t thread[8];
	long count = opt.processes < 8 ? opt.processes : 8;
	begin();
	shared = new_context(1);
	for (long i = 0; i < count; i++)
		pthread_create(&thread[i], NULL, churn_thread, (void *)(uintptr_t)(opt.seed + i + 1));
	for (long i = 0; i < count; i++)
		pthread_join(thread[i], NULL);
	conclude(work(), opt.n);
}

static void forks(void) {
	pid_t pids[16];
	long failed = 0, count = opt.processes < 16 ? opt.processes : 16;
	for (long i = 0; i < count; i++)
		if (!(pids[i] = fork()))
			child();
	for (long i = 0; i < count; i++)
		failed += pids[i] < 0 || reap(pids[i]);
	conclude(failed, count);
}

static void spawns(void) {
	pid_t pids[16];
	long failed = 0, count = opt.processes < 16 ? opt.processes : 16;
	for (long i = 0; i < count; i++) {
		pids[i] = again("child");
		nap(50);
	}
	for (long i = 0; i < count; i++)
		failed += pids[i] < 0 || reap(pids[i]);
	conclude(failed, count);
}

static void row(void) {
	long failed = 0;
	for (long i = 0; i < opt.processes; i++)
		failed += reap(again("child"));
	conclude(failed, opt.processes);
}

static void server(void) {
	begin();
	new_context(1);
	void *function = kernel();
	uint32_t *host = filled();
	ptr at = buffer(host);
	for (long i = 0; i < opt.requests; i++) {
		launch(function, at, NULL);
		CU(cuCtxSynchronize);
		CU(cuMemcpyDtoH_v2, host, at, (size_t)opt.n * 4);
		if (wrong_elements(host, i + 1))
			conclude(1, i);
		nap(opt.every_ms);
	}
	conclude(0, opt.requests);
}

// execs has a context and then becomes another CUDA program.
static void execs(void) {
	char *args[64];
	int n = 0;
	begin();
	new_context(1);
	if (work())
		conclude(1, 0);
	args[n++] = arguments[0];
	args[n++] = "runtime";
	for (char **a = arguments + 2; *a && n < 63; a++)
		args[n++] = *a;
	args[n] = NULL;
	execv("/proc/self/exe", args);
	conclude(1, errno);
}

// signals has a handler for what others take for granted, and gets many of them.
static void signals(void) {
	int all[] = {SIGCONT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGHUP, SIGCHLD, SIGTSTP};
	struct sigaction act = {.sa_handler = catch, .sa_flags = SA_RESTART};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		sigaction(all[i], &act, NULL);
	pid_t parent = getpid(), pid = fork();
	if (!pid) {
		for (int i = 0; i < 400 && getppid() == parent; i++) {
			kill(parent, i % 2 ? SIGUSR1 : SIGUSR2);
			nap(7);
		}
		finish(0);
	}
	setitimer(ITIMER_REAL, &(struct itimerval){{0, 13000}, {0, 13000}}, NULL);
	begin();
	new_context(1);
	long wrong = work();
	kill(pid, SIGKILL);
	reap(pid);
	wrong += !caught[SIGUSR1] + !caught[SIGUSR2] + !caught[SIGALRM];
	conclude(wrong, opt.n);
}

// selfstop stops itself where it likes; its parent lets it go on.
static void selfstop(void) {
	pid_t pid = fork();
	if (!pid) {
		begin();
		raise(SIGSTOP);
		new_context(1);
		raise(SIGSTOP);
		long wrong = work();
		raise(SIGSTOP);
		finish(wrong + work() ? 3 : 0);
	}
	int status, stops = 0;
	for (;;) {
		if (waitpid(pid, &status, WUNTRACED) < 0) {
			if (errno == EINTR)
				continue;
			conclude(1, stops);
		}
		if (!WIFSTOPPED(status))
			break;
		stops++;
		nap(60);
		kill(pid, SIGCONT);
	}
	conclude(!(WIFEXITED(status) && !WEXITSTATUS(status)) || stops < 3, 3);
}

static void segv(void) {
	begin();
	new_context(1);
	void *function = kernel();
	uint32_t *host = filled();
	launch(function, buffer(host), NULL);
	*(volatile int *)NULL = 1;
}

// fails ends in the middle of its work with a status of its own.
static void fails(void) {
	begin();
	new_context(1);
	void *function = kernel();
	uint32_t *host = filled();
	launch(function, buffer(host), NULL);
	say("right gave up");
	finish(7);
}

// memory asks for more than any card has.
static void memory(void) {
	ptr at;
	begin();
	new_context(1);
	if (work())
		conclude(1, 0);
	int result = cuMemAlloc_v2(&at, (size_t)1 << 42);
	say(result == 2 ? "right out of memory" : "wrong: %d", result);
	finish(result == 2 ? 5 : 3);
}

// copies brings a driver of its own: the same content in another file.
static void copies(void) {
	static char part[1 << 20];
	Dl_info found;
	void *lib = dlopen("libcuda.so.1", RTLD_LAZY), *init = lib ? dlsym(lib, "cuInit") : NULL;
	if (!init || !dladdr(init, &found))
		conclude(1, 1);
	mkdir("/tmp/own", 0755);
	int from = open(found.dli_fname, O_RDONLY), to = open("/tmp/own/libcuda.so.1", O_WRONLY | O_CREAT, 0755);
	for (ssize_t n; (n = read(from, part, sizeof part)) > 0;)
		if (write(to, part, (size_t)n) != n)
			conclude(1, 2);
	close(to);
	dlclose(lib);
	char *args[64];
	int n = 0;
	args[n++] = arguments[0];
	args[n++] = "runtime";
	args[n++] = "library=/tmp/own/libcuda.so.1";
	for (char **a = arguments + 2; *a && n < 63; a++)
		args[n++] = *a;
	args[n] = NULL;
	execv("/proc/self/exe", args);
	conclude(1, errno);
}

// endless computes until it is killed, as company for others.
static void endless(void) {
	begin();
	new_context(1);
	for (;;)
		if (work())
			conclude(1, 0);
}

static const struct {
	const char *name;
	void (*run)(void);
} kinds[] = {
	{"plain", plain},   {"runtime", runtime}, {"child", child},       {"streams", streams}, {"contexts", contexts},
	{"churn", churn},   {"forks", forks},     {"spawns", spawns},     {"row", row},         {"server", server},
	{"execs", execs},   {"signals", signals}, {"selfstop", selfstop}, {"segv", segv},       {"fails", fails},
	{"memory", memory}, {"copies", copies},   {"endless", endless},
};

static const struct {
	const char *name;
	long *number;
} numbers[] = {
	{"n", &opt.n},           {"iters", &opt.iters},       {"kernels", &opt.kernels}, {"processes", &opt.processes},
	{"streams", &opt.streams}, {"requests", &opt.requests}, {"every", &opt.every_ms},  {"load", &opt.load_ms},
	{"init", &opt.init_ms},  {"host", &opt.host_ms},      {"seed", &opt.seed},
};

int main(int argc, char **argv) {
	arguments = argv;
	if (getenv("ZOO_CONTS"))
		sigaction(SIGCONT, &(struct sigaction){.sa_handler = catch, .sa_flags = SA_RESTART}, NULL);
	for (int i = 2; i < argc; i++) {
		char *value = strchr(argv[i], '=');
		if (value && !strncmp(argv[i], "library=", 8))
			opt.library = value + 1;
		for (size_t k = 0; value && k < sizeof numbers / sizeof *numbers; k++)
			if (strlen(numbers[k].name) == (size_t)(value - argv[i]) && !strncmp(numbers[k].name, argv[i], (size_t)(value - argv[i])))
				*numbers[k].number = atol(value + 1);
	}
	for (size_t k = 0; argc > 1 && k < sizeof kinds / sizeof *kinds; k++)
		if (!strcmp(argv[1], kinds[k].name)) {
			kinds[k].run();
			return 0;
		}
	fprintf(stderr, "animal: no such kind\n");
	return 2;
}
