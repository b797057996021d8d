// ranks: work on several GPUs whose parts wait for each other, as an NCCL job's do.
//
//   ranks [--gpus N] [--processes] [--kernel SECONDS] [--steps N] [--shared FILE]
//
// Each rank has a GPU of its own: it runs a kernel there, adds its number to a sum that all share,
// waits until all have, and checks the sum. The ranks are threads of one process, or, with
// --processes, processes of their own. After each step the first one prints a line of JSON;
// a wrong sum, or a call that fails, ends the program with 1. --steps=0 is without end. With
// --shared it says in a file which others map how many steps are done, in place of lines, and
// ends when it is told to there: see struct told.
//
// The kernels have no content: it is for a simulated GPU, whose LAXITY_SIM_KERNEL_SECONDS
// says how long they take. libcuda.so.1 is loaded at run time.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 16 };

// shared is memory of all ranks.
static struct shared {
	pthread_barrier_t all;
	_Atomic uint64_t sums[2]; // of this step and the next
	_Atomic int over;         // this step was the last one
} *shared;

// told is the file of --shared.
static struct told {
	_Atomic uint64_t steps, wrong, stop; // stop: at the end of a step
} *told;

static int gpus = 2;
static long steps = 0;

#define DRIVER(X)                                                                              \
	X(cuInit, (unsigned))                                                                  \
	X(cuDeviceGet, (int *, int))                                                           \
	X(cuCtxCreate_v2, (void **, unsigned, int))                                            \
	X(cuModuleLoadData, (void **, const void *))                                           \
	X(cuModuleGetFunction, (void **, void *, const char *))                                \
	X(cuLaunchKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
			   unsigned, void *, void **, void **))                                \
	X(cuCtxSynchronize, (void))
#define DECLARE(name, args) static int(*name) args;
DRIVER(DECLARE)

static void fail(const char *what, long number) {
	fprintf(stderr, "ranks: %s: %ld\n", what, number);
	fflush(stdout);
	_exit(1);
}
#define CU(call, ...)                          \
	do {                                   \
		int code_ = call(__VA_ARGS__); \
		if (code_)                     \
			fail(#call, code_);    \
	} while (0)

static void say(const char *event, long step) {
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	printf("{\"time\":%ld.%06ld,\"event\":\"%s\",\"pid\":%d,\"task\":%ld}\n", (long)t.tv_sec, t.tv_nsec / 1000, event,
	       (int)getpid(), step);
	fflush(stdout);
}

static void load(void) {
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);
	if (!lib)
		fail("no libcuda.so.1", 0);
#define NEED(name, args)                          \
	*(void **)&name = dlsym(lib, #name);      \
	if (!name)                                \
		fail("libcuda has no " #name, 0);
	DRIVER(NEED)
	CU(cuInit, 0);
}

// work is one rank's, on the GPU with its number.
static void work(int rank) {
	int device;
	void *context, *module, *kernel;
	CU(cuDeviceGet, &device, rank);
	CU(cuCtxCreate_v2, &context, 0, device);
	CU(cuModuleLoadData, &module, "");
	CU(cuModuleGetFunction, &kernel, module, "step");
	uint64_t want = (uint64_t)gpus * (uint64_t)(gpus + 1) / 2;
	for (long step = 0; !steps || step < steps; step++) {
		_Atomic uint64_t *sum = &shared->sums[step % 2];
		CU(cuLaunchKernel, kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
		CU(cuCtxSynchronize);
		*sum += (uint64_t)rank + 1;
		pthread_barrier_wait(&shared->all);
		if (*sum != want) {
			if (told)
				told->wrong++;
			fail("a wrong sum, in step", step);
		}
		if (rank == 0)
			shared->over = told && told->stop;
		pthread_barrier_wait(&shared->all); // all have read it
		if (rank == 0) {
			*sum = 0; // the others use the other one until they meet again
			if (told)
				told->steps++;
			else
				say("kernels_end", step);
		}
		if (shared->over)
			break;
	}
}

static void *as_thread(void *rank) {
	work((int)(intptr_t)rank);
	return NULL;
}

static void run_threads(void) {
	pthread_t all[MOST];
	load();
	for (int i = 0; i < gpus; i++)
		if (pthread_create(&all[i], NULL, as_thread, (void *)(intptr_t)i))
			fail("no thread", i);
	for (int i = 0; i < gpus; i++)
		pthread_join(all[i], NULL);
}

static void run_processes(void) {
	for (int i = 0; i < gpus; i++) {
		pid_t pid = fork();
		if (pid < 0)
			fail("no process", i);
		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			load();
			work(i);
			exit(0);
		}
	}
	for (int status; wait(&status) > 0;)
		if (status)
			fail("a rank ended with", status); // the others would wait for ever
}

int main(int argc, char **argv) {
	int processes = 0;
	static const struct option options[] = {{"gpus", required_argument, NULL, 'g'}, {"processes", no_argument, NULL, 'p'},
		{"kernel", required_argument, NULL, 'k'}, {"steps", required_argument, NULL, 's'}, {"shared", required_argument, NULL, 'm'}, {NULL, 0, NULL, 0}};
	for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;)
		switch (c) {
		case 'g':
			gpus = atoi(optarg);
			break;
		case 'p':
			processes = 1;
			break;
		case 'k':
			setenv("LAXITY_SIM_KERNEL_SECONDS", optarg, 1);
			break;
		case 's':
			steps = atol(optarg);
			break;
		case 'm': {
			int fd = open(optarg, O_RDWR | O_CLOEXEC);
			told = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
			if (told == MAP_FAILED)
				return 2;
			break;
		}
		default:
			return 2;
		}
	if (gpus < 1 || gpus > MOST || steps < 0)
		return 2;
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		fail("no memory", 0);
	pthread_barrierattr_t attributes;
	pthread_barrierattr_init(&attributes);
	pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&shared->all, &attributes, (unsigned)gpus);
	say("start", 0);
	if (processes)
		run_processes();
	else
		run_threads();
	say("exit", 0);
	return 0;
}
