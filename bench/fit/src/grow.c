// A program that asks for more GPU memory, step by step, until it is refused, and keeps what it has:
//   grow BYTES SECONDS
// asks for BYTES every SECONDS. It prints a line of JSON for its context, for each step and for the refusal, and
// stays until it is killed. libcuda.so.1 is loaded at run time.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static void *library;

static void *find(const char *name) {
	void *f = dlsym(library, name);
	if (!f) {
		fprintf(stderr, "grow: libcuda.so.1 has no %s\n", name);
		exit(1);
	}
	return f;
}

#define CALL(name, types, ...) (((int (*) types)find(#name))(__VA_ARGS__))

static void event(const char *name, int task, int code) {
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	printf("{\"time\":%lld.%06ld,\"event\":\"%s\",\"pid\":%d,\"task\":%d,\"code\":%d}\n", (long long)now.tv_sec, now.tv_nsec / 1000, name,
	       (int)getpid(), task, code);
	fflush(stdout);
}

static void refused(int steps, int code) {
	event("refused", steps, code);
	for (;;)
		pause();
}

int main(int argc, char **argv) {
	if (argc != 3 || !(library = dlopen("libcuda.so.1", RTLD_NOW))) {
		fprintf(stderr, "grow: %s\n", argc == 3 ? dlerror() : "usage: grow BYTES SECONDS");
		return 2;
	}
	size_t bytes = strtoull(argv[1], NULL, 10);
	double seconds = strtod(argv[2], NULL);
	struct timespec nap = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
	void *context;
	int device, code = CALL(cuInit, (unsigned), 0);
	if (!code)
		code = CALL(cuDeviceGet, (int *, int), &device, 0);
	if (!code)
		code = CALL(cuCtxCreate_v2, (void **, unsigned, int), &context, 0, device);
	if (code)
		refused(0, code);
	event("context", 0, 0);
	for (int step = 0;; step++) {
		uint64_t address;
		nanosleep(&nap, NULL);
		if ((code = CALL(cuMemAlloc_v2, (uint64_t *, size_t), &address, bytes)))
			refused(step, code);
		event("step", step, 0);
	}
}
