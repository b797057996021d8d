// A program that asks for GPU memory step by step until it is refused, and then
// tries to go on, by the driver's own calls:
//   steps LIBRARY HOW BYTES MOST PROCESSES
// HOW is plain (cuMemAlloc), pool (cuMemAllocAsync), map (cuMemCreate, mapped to an address),
// managed (cuMemAllocManaged), captured (cuMemAllocAsync
// in a stream that is captured, launched as a graph) or nodes (memory nodes added to
// a graph by hand). It stops at MOST bytes. Each of its processes, which are forked
// before they use CUDA, prints a line: granted bytes, the result and the call that
// refused, how many steps it freed until it could go on, and whether it could; then
// the call and the result that last kept it from that.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void *library, *stream;
static int device;
static const char *at = "";

#define CALL(name, types, ...) (at = #name, ((int (*) types) find(#name))(__VA_ARGS__))

static void *find(const char *name) {
	void *f = dlsym(library, name);
	if (!f) { fprintf(stderr, "the driver has no %s\n", name); exit(1); }
	return f;
}

static void nap(int ms) {
	struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
	nanosleep(&t, NULL);
}

// As in cuda.h.
struct location { int type, id; };
struct properties {
	int type, handles;
	struct location location;
	void *security;
	size_t most;
	unsigned short usage;
	unsigned char reserved[54];
};
struct access { struct location location; int flags; };
struct physical { int type, handles; struct location location; void *metadata; unsigned char compression, direct; unsigned short usage; unsigned char reserved[4]; };
_Static_assert(sizeof(struct physical) == 32, "CUmemAllocationProp has 32 bytes");
struct node { struct properties pool; const struct access *access; size_t accesses, bytes; uint64_t pointer; };
_Static_assert(sizeof(struct properties) == 88, "CUmemPoolProps has 88 bytes");

static int launch(void *graph) {
	void *made;
	int result = CALL(cuGraphInstantiateWithFlags, (void **, void *, unsigned long long), &made, graph, 0);
	if (!result) result = CALL(cuGraphLaunch, (void *, void *), made, stream);
	if (!result) result = CALL(cuStreamSynchronize, (void *), stream);
	return result;
}

static int captured(uint64_t *out, size_t bytes) {
	void *graph = NULL;
	int result = CALL(cuStreamBeginCapture_v2, (void *, int), stream, 2);
	if (result) return result;
	int refused = CALL(cuMemAllocAsync, (uint64_t *, size_t, void *), out, bytes, stream);
	const char *where = at;
	result = CALL(cuStreamEndCapture, (void *, void **), stream, &graph);
	if (refused) { at = where; return refused; }
	return result ? result : launch(graph);
}

static int nodes(uint64_t *out, size_t bytes) {
	void *graph, *added;
	struct access access = {{1, device}, 3};
	struct node n = {.pool = {.type = 1, .location = {1, device}}, .access = &access, .accesses = 1, .bytes = bytes};
	int result = CALL(cuGraphCreate, (void **, unsigned), &graph, 0);
	if (!result) result = CALL(cuGraphAddMemAllocNode, (void **, void *, const void *, size_t, struct node *), &added, graph, NULL, 0, &n);
	if (result) return result;
	*out = n.pointer;
	return launch(graph);
}

// Each handle is released once it is mapped: its memory is there as long as the mapping.
static int map(uint64_t *out, size_t bytes) {
	struct physical p = {.type = 1, .location = {1, device}};
	struct access access = {{1, device}, 3};
	uint64_t handle;
	int result = CALL(cuMemCreate, (uint64_t *, size_t, const struct physical *, unsigned long long), &handle, bytes, &p, 0);
	*out = handle;
	if (result || !dlsym(library, "cuMemMap")) return result; // a stand-in maps nothing
	result = CALL(cuMemAddressReserve, (uint64_t *, size_t, size_t, uint64_t, unsigned long long), out, bytes, 0, 0, 0);
	if (!result) result = CALL(cuMemMap, (uint64_t, size_t, size_t, uint64_t, unsigned long long), *out, bytes, 0, handle, 0);
	if (!result) result = CALL(cuMemRelease, (uint64_t), handle);
	if (!result) result = CALL(cuMemSetAccess, (uint64_t, size_t, const struct access *, size_t), *out, bytes, &access, 1);
	return result;
}

static int unmap(uint64_t p, size_t bytes) {
	if (!dlsym(library, "cuMemMap")) return CALL(cuMemRelease, (uint64_t), p);
	int result = CALL(cuMemUnmap, (uint64_t, size_t), p, bytes);
	return result ? result : CALL(cuMemAddressFree, (uint64_t, size_t), p, bytes);
}

static const char *how;

static int ask(uint64_t *out, size_t bytes) {
	int result;
	if (!strcmp(how, "plain")) return CALL(cuMemAlloc_v2, (uint64_t *, size_t), out, bytes);
	if (!strcmp(how, "pool")) return CALL(cuMemAllocAsync, (uint64_t *, size_t, void *), out, bytes, stream);
	if (!strcmp(how, "map")) return map(out, bytes);
	if (!strcmp(how, "captured")) return captured(out, bytes);
	if (!strcmp(how, "nodes")) return nodes(out, bytes);
	if ((result = CALL(cuMemAllocManaged, (uint64_t *, size_t, unsigned), out, bytes, 1))) return result;
	if (!dlsym(library, "cuMemsetD8_v2")) return 0;
	if ((result = CALL(cuMemsetD8_v2, (uint64_t, unsigned char, size_t), *out, 1, bytes))) return result; // now it is there
	return CALL(cuCtxSynchronize, (void));
}

// wait_at makes a file named by the PID in a folder, and waits, up to a minute, until somebody removes it.
static void wait_at(const char *folder) {
	char path[4096];
	snprintf(path, sizeof path, "%s/%d", folder, getpid());
	FILE *file = fopen(path, "w");
	if (file) fclose(file);
	for (int i = 0; i < 6000 && !access(path, F_OK); i++) nap(10);
}

static int begin(void) {
	void *context = NULL;
	int result = CALL(cuInit, (unsigned), 0);
	// A stand-in for the driver makes a context in no time; a guard takes longer to find the process.
	if (getenv("STEPS_GATE")) wait_at(getenv("STEPS_GATE"));
	if (!result && dlsym(library, "cuDeviceGet")) result = CALL(cuDeviceGet, (int *, int), &device, 0);
	if (!result) result = CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, device);
	if (!result && dlsym(library, "cuCtxSetCurrent")) result = CALL(cuCtxSetCurrent, (void *), context);
	if (!result && (!strcmp(how, "pool") || !strcmp(how, "captured") || !strcmp(how, "nodes"))) result = CALL(cuStreamCreate, (void **, unsigned), &stream, 1);
	return result;
}

static int release(uint64_t p, size_t bytes) {
	if (!strcmp(how, "map")) return unmap(p, bytes);
	if (stream) {
		int result = CALL(cuMemFreeAsync, (uint64_t, void *), p, stream);
		if (!result) result = CALL(cuStreamSynchronize, (void *), stream);
		return result ? result : CALL(cuDeviceGraphMemTrim, (int), device);
	}
	return CALL(cuMemFree_v2, (uint64_t), p);
}

static void meet(_Atomic int *there, int processes) {
	++*there;
	for (int i = 0; i < 1000 && *there < processes; i++) nap(10);
}

static int one(size_t bytes, size_t most, _Atomic int *done, int processes) {
	static uint64_t blocks[1 << 12];
	size_t count = 0;
	int result = begin();
	meet(&done[0], processes); // all have a context before anybody takes the rest
	while (!result && (count + 1) * bytes <= most && !(result = ask(&blocks[count], bytes))) {
		count++;
		if (processes > 1) nap(5); // the others too
	}
	const char *refused = result ? at : "-";
	// Everybody holds what it has until all have asked, and a little longer: somebody looks.
	meet(&done[1], processes);
	nap(200);
	size_t freed = 0;
	int failed = count == 0;
	const char *last = "-";
	uint64_t again;
	while (freed < count) {
		if (!(failed = release(blocks[count - ++freed], bytes)) && !(failed = ask(&again, bytes / 2))) break;
		last = at;
	}
	printf("%zu %d %s %zu %d %s %d\n", count * bytes, result, refused, freed, !failed, last, failed);
	return 0;
}

int main(int argc, char **argv) {
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 6) { fprintf(stderr, "usage: steps LIBRARY HOW BYTES MOST PROCESSES\n"); return 2; }
	if (!(library = dlopen(argv[1], RTLD_NOW))) { fprintf(stderr, "%s\n", dlerror()); return 1; }
	how = argv[2];
	size_t bytes = strtoull(argv[3], NULL, 10), most = strtoull(argv[4], NULL, 10);
	int processes = atoi(argv[5]), failed = 0, status;
	_Atomic int *done = mmap(NULL, 2 * sizeof *done, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (done == MAP_FAILED) return 1;
	if (processes == 1) return one(bytes, most, done, 1);
	for (int i = 0; i < processes; i++) {
		if (!fork()) return one(bytes, most, done, processes);
	}
	while (wait(&status) > 0) failed |= status;
	return failed != 0;
}
