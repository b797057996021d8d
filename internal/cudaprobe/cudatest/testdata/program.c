// A program that calls a CUDA library as it is told on its input, and says when.
// Input, one a line:
//   call NAME [WAIT_US] [TIMES]    calls it; answers "NAME BEFORE AFTER" (wall clock, ns)
//   thread NAME [WAIT_US]          the same, from a new thread
//   hold NAME                      from a new thread; the call waits for release
//   release                        lets that call return; answers "release BEFORE AFTER"
//   open                           loads the library; answers "open BEFORE AFTER"
//   alloc NAME BYTES TIMES         allocates until it is refused; answers "NAME BEFORE AFTER RESULT COUNT"
//   threads NAME BYTES TIMES N     the same in N threads at once; RESULT of the last one refused
//   loop NAME BYTES TIMES          allocates and frees
//   free NAME TIMES                frees the latest so many
//   context NAME DEVICE            makes or retains a context there; answers "NAME BEFORE AFTER 0 0"
//   current NAME DEVICE            the latest one there becomes current; or is pushed, or popped
//   graph NAME                     makes the graph ready that nodes are added to, launches or destroys it, or adds a node
//                                  that frees the latest allocation
//   info                           answers "info BEFORE AFTER FREE TOTAL OF_THE_DEVICE"
//   fork                           goes on as a child with another PID; answers "fork PID PID"
//   exec                           begins again as a new program
// argv[1] is the library.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct call { char name[64]; long wait, times; long long before, after; };

static void *library;
static int *wait_us;
static volatile int *hold, *held;
static pthread_t holder;
static struct call *holding;

// What it has allocated, latest last.
static uint64_t blocks[1 << 16];
static _Atomic long count;

struct allocation { char name[64]; size_t bytes; long times, done; int result; long long before, after; };

static long long now(void);

static void *function(const char *name) {
	void *f = dlsym(library, name);
	if (!f) { fprintf(stderr, "no function %s\n", name); exit(1); }
	return f;
}

// The graph that nodes are added to, and what is launched of it.
static void *graph, *ready;

// add_node adds a node that gets memory to the graph, or an empty one.
static int add_node(const char *name, size_t bytes, uint64_t *out) {
	struct { int type, handles, location, id; char rest[72]; const void *access; size_t accesses, bytes; uint64_t pointer; } memory = { 1, 0, 1, 0, .bytes = bytes };
	struct { int type, reserved[3]; char memory[sizeof memory]; } any = { bytes ? 10 : 5 };
	void *f = function(name), *node;
	int result;
	if (!graph) ((int (*)(void **, unsigned))function("cuGraphCreate"))(&graph, 0);
	if (!strcmp(name, "cuGraphAddMemAllocNode")) {
		result = ((int (*)(void **, void *, void *, size_t, void *))f)(&node, graph, NULL, 0, &memory);
	} else {
		memcpy(any.memory, &memory, sizeof memory);
		if (!strcmp(name, "cuGraphAddNode")) result = ((int (*)(void **, void *, void *, size_t, void *))f)(&node, graph, NULL, 0, &any);
		else result = ((int (*)(void **, void *, void *, void *, size_t, void *))f)(&node, graph, NULL, NULL, 0, &any);
		memcpy(&memory, any.memory, sizeof memory);
	}
	*out = memory.pointer;
	return result;
}

static void about_graph(struct allocation *a) {
	void *f = function(a->name);
	a->before = now();
	if (!strncmp(a->name, "cuGraphInstantiate", 18)) a->result = ((int (*)(void **, void *, unsigned long long))f)(&ready, graph, 0);
	else if (!strcmp(a->name, "cuGraphAddMemFreeNode")) a->result = ((int (*)(void **, void *, void *, size_t, uint64_t))f)(&(void *){NULL}, graph, NULL, 0, blocks[--count]);
	else if (!strcmp(a->name, "cuGraphLaunch")) a->result = ((int (*)(void *, void *))f)(ready, NULL);
	else a->result = ((int (*)(void *))f)(graph), graph = NULL;
	a->after = now();
}

// allocate calls one of the functions that allocate, each in its own way.
static int allocate(const char *name, size_t bytes, uint64_t *out) {
	void *f = function(name);
	struct { size_t width, height; unsigned format, channels; } plane = { bytes / 4, 0, 0x20, 1 };
	struct { size_t width, height, depth; unsigned format, channels, flags; } cube = { bytes / 4, 0, 0, 0x20, 1, 0 };
	struct { int type, handles, location, id; } prop = { 1, 0, 1, 0 };
	if (!strncmp(name, "cuGraphAdd", 10)) return add_node(name, bytes, out);
	if (!strncmp(name, "cuMemAllocPitch", 15)) {
		size_t pitch;
		return ((int (*)(uint64_t *, size_t *, size_t, size_t, unsigned))f)(out, &pitch, bytes / 16, 16, 4);
	}
	if (!strcmp(name, "cuMemCreate"))
		return ((int (*)(uint64_t *, size_t, void *, unsigned long long))f)(out, bytes, &prop, 0);
	if (!strncmp(name, "cuArrayCreate", 13)) return ((int (*)(uint64_t *, void *))f)(out, &plane);
	if (!strncmp(name, "cuArray3DCreate", 15)) return ((int (*)(uint64_t *, void *))f)(out, &cube);
	if (!strncmp(name, "cuMipmapped", 11)) return ((int (*)(uint64_t *, void *, unsigned))f)(out, &cube, 1);
	if (!strncmp(name, "cuMemAllocFromPool", 18))
		return ((int (*)(uint64_t *, size_t, void *, void *))f)(out, bytes, NULL, NULL);
	return ((int (*)(uint64_t *, size_t, void *))f)(out, bytes, NULL);
}

static void *allocate_all(void *arg) {
	struct allocation *a = arg;
	a->before = now();
	for (a->done = 0; a->done < a->times; a->done++) {
		uint64_t block;
		if ((a->result = allocate(a->name, a->bytes, &block))) break;
		blocks[count++] = block;
	}
	a->after = now();
	return NULL;
}

static void allocate_in(struct allocation *a, int threads) {
	pthread_t *all = calloc(threads, sizeof *all);
	struct allocation *each = calloc(threads, sizeof *each);
	long long before = now();
	for (int i = 0; i < threads; i++) {
		each[i] = *a;
		pthread_create(&all[i], NULL, allocate_all, &each[i]);
	}
	for (int i = 0; i < threads; i++) {
		pthread_join(all[i], NULL);
		a->done += each[i].done;
		if (each[i].result) a->result = each[i].result;
	}
	a->before = before;
	a->after = now();
	free(all);
	free(each);
}

static void release(struct allocation *a) {
	int (*f)(uint64_t, void *) = (int (*)(uint64_t, void *))function(a->name);
	a->before = now();
	for (a->done = 0; a->done < a->times && count > 0 && !(a->result = f(blocks[--count], NULL)); a->done++) {}
	a->after = now();
}

static void loop(struct allocation *a) {
	int (*f)(uint64_t, void *) = (int (*)(uint64_t, void *))function(strstr(a->name, "Async") ? "cuMemFreeAsync" : "cuMemFree_v2");
	a->before = now();
	for (a->done = 0; a->done < a->times; a->done++) {
		uint64_t block;
		if ((a->result = allocate(a->name, a->bytes, &block))) break;
		f(block, NULL);
	}
	a->after = now();
}

static void context(struct allocation *a) {
	static void *contexts[64];
	int device = (int)a->bytes & 63;
	void *f = function(a->name);
	a->before = now();
	if (!strcmp(a->name, "cuDevicePrimaryCtxRetain")) ((int (*)(void **, int))f)(&contexts[device], device);
	else if (!strncmp(a->name, "cuCtxCreate", 11)) ((int (*)(void **, unsigned, int))f)(&contexts[device], 0, device);
	else if (!strncmp(a->name, "cuCtxPop", 8)) ((int (*)(void **))f)(NULL);
	else ((int (*)(void *))f)(contexts[device]);
	a->after = now();
}

static void info(void) {
	size_t available, all, device;
	long long before = now();
	((int (*)(size_t *, size_t *))function("cuMemGetInfo_v2"))(&available, &all);
	((int (*)(size_t *, int))function("cuDeviceTotalMem_v2"))(&device, 0);
	printf("info %lld %lld %zu %zu %zu\n", before, now(), available, all, device);
}

// memory does what a line about memory says; 0: it is about something else.
static int about_memory(const char *line) {
	struct allocation a = { .times = 1 };
	char verb[32] = "";
	int threads = 1;
	if (sscanf(line, "%31s %63s %zu %ld %d", verb, a.name, &a.bytes, &a.times, &threads) < 1) return 0;
	if (!strcmp(verb, "info")) { info(); return 1; }
	if (!strcmp(verb, "alloc")) allocate_all(&a);
	else if (!strcmp(verb, "threads")) allocate_in(&a, threads);
	else if (!strcmp(verb, "context") || !strcmp(verb, "current")) context(&a);
	else if (!strcmp(verb, "graph")) about_graph(&a);
	else if (!strcmp(verb, "loop")) loop(&a);
	else if (!strcmp(verb, "free")) { a.times = a.bytes; release(&a); }
	else return 0;
	printf("%s %lld %lld %d %ld\n", a.name, a.before, a.after, a.result, a.done);
	return 1;
}

static long long now(void) {
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void load(const char *path) {
	if (library) return;
	library = dlopen(path, RTLD_NOW);
	if (!library) { fprintf(stderr, "%s\n", dlerror()); exit(1); }
	wait_us = dlsym(library, "laxity_wait_us");
	hold = dlsym(library, "laxity_hold");
	held = dlsym(library, "laxity_held");
}

static void *run(void *arg) {
	struct call *c = arg;
	int (*f)(void *, int) = (int (*)(void *, int))function(c->name);
	if (wait_us) *wait_us = c->wait;
	c->before = now();
	for (long i = 0; i < c->times; i++) f(NULL, 0);
	c->after = now();
	return NULL;
}

int main(int argc, char **argv) {
	if (argc < 2) return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	setvbuf(stdin, NULL, _IONBF, 0); // what follows exec is for the new program
	char line[256];
	while (fgets(line, sizeof line, stdin)) {
		struct call c = { .times = 1 };
		char verb[32];
		if (sscanf(line, "%31s %63s %ld %ld", verb, c.name, &c.wait, &c.times) < 1) continue;
		if (!strcmp(verb, "exec")) {
			execv("/proc/self/exe", argv);
			return 1;
		}
		if (!strcmp(verb, "fork")) {
			pid_t child = fork();
			if (child > 0) {
				int status;
				waitpid(child, &status, 0);
				return 0;
			}
			printf("fork %d %d\n", getpid(), getpid());
			continue;
		}
		if (!strcmp(verb, "open")) {
			c.before = now();
			load(argv[1]);
			printf("open %lld %lld\n", c.before, now());
			continue;
		}
		load(argv[1]);
		if (about_memory(line)) continue;
		if (!strcmp(verb, "call")) {
			run(&c);
		} else if (!strcmp(verb, "thread")) {
			pthread_t thread;
			pthread_create(&thread, NULL, run, &c);
			pthread_join(thread, NULL);
		} else if (!strcmp(verb, "hold")) {
			holding = malloc(sizeof c);
			*holding = c;
			*hold = 1;
			pthread_create(&holder, NULL, run, holding);
			while (!*held) usleep(100);
		} else if (!strcmp(verb, "release")) {
			c.before = now();
			strcpy(c.name, verb);
			*hold = 0;
			pthread_join(holder, NULL);
			c.after = holding->after;
			free(holding);
		}
		printf("%s %lld %lld\n", c.name, c.before, c.after);
	}
	return 0;
}
