// A program that calls a CUDA library as it is told on its input, and says when.
// Input, one a line:
//   call NAME [WAIT_US] [TIMES]    calls it; answers "NAME BEFORE AFTER" (wall clock, ns)
//   thread NAME [WAIT_US]          the same, from a new thread
//   hold NAME                      from a new thread; the call waits for release
//   release                        lets that call return; answers "release BEFORE AFTER"
//   open                           loads the library; answers "open BEFORE AFTER"
//   fork                           goes on as a child with another PID; answers "fork PID PID"
//   exec                           begins again as a new program
// argv[1] is the library.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
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
	int (*function)(void) = (int (*)(void))dlsym(library, c->name);
	if (!function) { fprintf(stderr, "no function %s\n", c->name); exit(1); }
	if (wait_us) *wait_us = c->wait;
	c->before = now();
	for (long i = 0; i < c->times; i++) function();
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
