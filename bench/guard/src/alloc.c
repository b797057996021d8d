// A program that allocates GPU memory as it is told on its input, by the driver's
// own calls. argv[1] is the driver's library.
//   loop N BYTES   allocates and frees N times; answers "RESULT MEDIAN_NS P99_NS" of the allocations
//   fill BYTES     allocates until it is refused, and frees all; answers "RESULT COUNT 0"
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void *library;

static void *find(const char *name) { return dlsym(library, name); }

static long long now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int compare(const void *a, const void *b) {
	long long x = *(const long long *)a, y = *(const long long *)b;
	return (x > y) - (x < y);
}

int main(int argc, char **argv) {
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 2 || !(library = dlopen(argv[1], RTLD_NOW))) { fprintf(stderr, "%s\n", dlerror()); return 1; }
	int (*init)(unsigned) = find("cuInit"), (*get)(int *, int) = find("cuDeviceGet");
	int (*retain)(void **, int) = find("cuDevicePrimaryCtxRetain"), (*set)(void *) = find("cuCtxSetCurrent");
	int (*allocate)(uint64_t *, size_t) = find("cuMemAlloc_v2"), (*release)(uint64_t) = find("cuMemFree_v2");
	int device = 0, result;
	void *context = NULL;
	if ((result = init(0)) || (get && (result = get(&device, 0))) || (result = retain(&context, device)) || (set && (result = set(context)))) {
		fprintf(stderr, "CUDA error %d\n", result);
		return 1;
	}
	puts("ready 0 0");
	char verb[16];
	while (scanf("%15s", verb) == 1) {
		size_t count = 0, bytes;
		if (verb[0] == 'l') {
			size_t n;
			if (scanf("%zu %zu", &n, &bytes) != 2) return 1;
			long long *took = malloc(n * sizeof *took);
			for (size_t i = 0; i < n; i++) {
				uint64_t p;
				long long begin = now();
				result = allocate(&p, bytes);
				took[i] = now() - begin;
				if (!result) release(p);
			}
			qsort(took, n, sizeof *took, compare);
			printf("%d %lld %lld\n", result, took[n / 2], took[n - 1 - n / 100]);
			free(took);
			continue;
		}
		if (scanf("%zu", &bytes) != 1) return 1;
		static uint64_t blocks[1 << 16];
		while (count < 1 << 16 && !(result = allocate(&blocks[count], bytes))) count++;
		printf("%d %zu 0\n", result, count);
		while (count > 0) release(blocks[--count]);
	}
	return 0;
}
