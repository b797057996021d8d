// The part of the stand-in that allocates: it counts, and keeps the count of each
// process in a file of the folder LAXITY_LEDGER, as a device would tell it.
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dispatched.h"

enum { OUT_OF_MEMORY = 2, SUCCESS = 0 };

static const size_t total = (size_t)16 << 30;
static const size_t context_size = (size_t)64 << 20;

struct array { size_t width, height; unsigned format, channels; };
struct array3d { size_t width, height, depth; unsigned format, channels, flags; };
struct prop { int type, handles, location, id; };

// One process's memory. Blocks are known by their addresses, which are numbers.
struct memory { _Atomic size_t used, context, pool_used, pool_reserved, graph_used, graph_reserved; };
static struct memory nowhere, *memory = &nowhere;
static pid_t owner;

enum { BLOCKS = 1 << 16 };
static _Atomic size_t sizes[BLOCKS]; // 0: free
enum { PLAIN, POOLED, MANAGED, GRAPH }; // managed memory is not in the ledger, as with NVML
static _Atomic char kinds[BLOCKS];

static struct memory *mine(void) {
	if (owner == getpid()) return memory;
	owner = getpid();
	memory = &nowhere;
	const char *folder = getenv("LAXITY_LEDGER");
	if (!folder) return memory;
	char path[4096];
	snprintf(path, sizeof path, "%s/%d", folder, owner);
	int fd = open(path, O_RDWR | O_CREAT, 0666);
	if (fd < 0 || ftruncate(fd, sizeof *memory)) abort();
	memory = mmap(NULL, sizeof *memory, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED) abort();
	close(fd);
	*memory = (struct memory){0};
	return memory;
}

// A new program holds nothing, before it asks for anything.
static __attribute__((constructor)) void begin(void) { mine(); }

static int take(uint64_t *out, size_t bytes, char kind) {
	struct memory *m = mine();
	if (!bytes || m->used + bytes > total) return OUT_OF_MEMORY;
	for (size_t i = 1; i < BLOCKS; i++) {
		size_t none = 0;
		if (!__atomic_compare_exchange_n((size_t *)&sizes[i], &none, bytes, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) continue;
		kinds[i] = kind;
		if (kind == PLAIN) {
			m->used += bytes;
		} else if (kind == POOLED) {
			size_t want = (m->pool_used += bytes), have = m->pool_reserved;
			if (want > have) {
				m->pool_reserved = want;
				m->used += want - have;
			}
		}
		*out = i << 20;
		return SUCCESS;
	}
	return OUT_OF_MEMORY;
}

static int give(uint64_t pointer) {
	struct memory *m = mine();
	size_t i = pointer >> 20, bytes = i < BLOCKS ? sizes[i] : 0;
	if (!bytes) return 1;
	if (kinds[i] == POOLED) m->pool_used -= bytes;
	else if (kinds[i] == PLAIN) m->used -= bytes;
	else if (kinds[i] == GRAPH) m->graph_used -= bytes; // launched; it stays until it is trimmed
	sizes[i] = 0;
	return SUCCESS;
}

static size_t channel(unsigned format) {
	switch (format) {
	case 1: case 8: return 1;
	case 2: case 9: case 16: return 2;
	}
	return 4;
}

static size_t one(size_t n) { return n ? n : 1; }

#define CALL __attribute__((noinline, noipa)) int

CALL cuDevicePrimaryCtxRetain(void **context, int device) {
	struct memory *m = mine();
	size_t none = 0;
	if (__atomic_compare_exchange_n((size_t *)&m->context, &none, context_size, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		m->used += context_size;
	if (context) *context = (char *)m + device; // a handle, different for each device
	return SUCCESS;
}
CALL cuCtxSetCurrent(void *context) { (void)context; return SUCCESS; }
CALL cuCtxPushCurrent_v2(void *context) { (void)context; return SUCCESS; }
CALL cuCtxPopCurrent_v2(void **context) { (void)context; return SUCCESS; }
CALL cuMemAlloc_v2(uint64_t *out, size_t bytes) { return take(out, bytes, PLAIN); }
// As alias functions of a library may be: its first instruction leads away.
static __attribute__((used)) CALL take_plain(uint64_t *out, size_t bytes) { return take(out, bytes, PLAIN); }
__asm__(".text\n.globl cuMemAlloc_v2_ptds\n.type cuMemAlloc_v2_ptds, @function\n"
	"cuMemAlloc_v2_ptds: jmp take_plain\n.size cuMemAlloc_v2_ptds, .-cuMemAlloc_v2_ptds\n");
DISPATCHED(cuMemAlloc_v2_ptsz, take_plain)
CALL cuMemAllocManaged(uint64_t *out, size_t bytes, unsigned flags) { (void)flags; return take(out, bytes, MANAGED); }
CALL cuMemAllocPitch_v2(uint64_t *out, size_t *pitch, size_t width, size_t height, unsigned element) {
	(void)element;
	*pitch = width;
	return take(out, width * height, PLAIN);
}
CALL cuMemCreate(uint64_t *out, size_t bytes, const struct prop *prop, unsigned long long flags) {
	(void)flags;
	if (prop->location > 1) { *out = 0; return SUCCESS; } // of the host
	return take(out, bytes, PLAIN);
}
CALL cuMemAllocAsync(uint64_t *out, size_t bytes, void *stream) { (void)stream; return take(out, bytes, POOLED); }
CALL cuMemAllocFromPoolAsync(uint64_t *out, size_t bytes, void *pool, void *stream) { (void)pool; (void)stream; return take(out, bytes, POOLED); }
CALL cuArrayCreate_v2(uint64_t *out, const struct array *a) {
	return take(out, a->width * one(a->height) * one(a->channels) * channel(a->format), PLAIN);
}
CALL cuArray3DCreate_v2(uint64_t *out, const struct array3d *a) {
	return take(out, a->width * one(a->height) * one(a->depth) * one(a->channels) * channel(a->format), PLAIN);
}
CALL cuMipmappedArrayCreate(uint64_t *out, const struct array3d *a, unsigned levels) {
	size_t bytes = a->width * one(a->height) * one(a->depth) * one(a->channels) * channel(a->format);
	return take(out, levels > 1 ? bytes + bytes / 3 : bytes, PLAIN);
}
CALL cuMemFree_v2(uint64_t pointer) { return give(pointer); }
CALL cuMemFreeAsync(uint64_t pointer, void *stream) { (void)stream; return give(pointer); }
CALL cuMemRelease(uint64_t pointer) { return give(pointer); }
CALL cuMemPoolTrimTo(void *pool, size_t keep) {
	(void)pool;
	struct memory *m = mine();
	size_t floor = m->pool_used > keep ? m->pool_used : keep, have = m->pool_reserved;
	if (have > floor) { m->pool_reserved = floor; m->used -= have - floor; }
	return SUCCESS;
}
CALL cuMemGetInfo_v2(size_t *available, size_t *all) {
	*available = total - mine()->used;
	*all = total;
	return SUCCESS;
}
CALL cuDeviceTotalMem_v2(size_t *all, int device) {
	(void)device;
	*all = total;
	return SUCCESS;
}

// Graphs get the memory of their nodes when they are launched, once.
// Within a graph they give memory again that a node of it has freed.
enum { NODES = 64 };
struct graph { size_t bytes; int nodes, ready; struct { uint64_t pointer; int freed; } node[NODES]; };
struct node { int type, handles, location, id; char rest[72]; const void *access; size_t accesses, bytes; uint64_t pointer; };
struct any_node { int type, reserved[3]; struct node memory; };
_Static_assert(offsetof(struct node, bytes) == 104, "CUDA_MEM_ALLOC_NODE_PARAMS");

CALL cuGraphCreate(struct graph **out, unsigned flags) {
	(void)flags;
	*out = calloc(1, sizeof **out);
	return SUCCESS;
}
CALL cuGraphAddMemAllocNode(void **out, struct graph *graph, const void *after, size_t count, struct node *node) {
	(void)after; (void)count;
	*out = graph;
	if (node->location > 1) return SUCCESS; // of the host
	for (int i = 0; i < graph->nodes; i++) {
		if (!graph->node[i].freed || sizes[graph->node[i].pointer >> 20] < node->bytes) continue;
		graph->node[i].freed = 0;
		node->pointer = graph->node[i].pointer;
		return SUCCESS;
	}
	int result = take(&node->pointer, node->bytes, GRAPH);
	if (result) return result;
	graph->bytes += node->bytes;
	if (graph->nodes < NODES) graph->node[graph->nodes++].pointer = node->pointer;
	return SUCCESS;
}
CALL cuGraphAddMemFreeNode(void **out, struct graph *graph, const void *after, size_t count, uint64_t pointer) {
	(void)after; (void)count;
	*out = graph;
	for (int i = 0; i < graph->nodes; i++)
		if (graph->node[i].pointer == pointer) graph->node[i].freed = 1;
	return SUCCESS;
}
CALL cuGraphAddNode(void **out, struct graph *graph, const void *after, size_t count, struct any_node *node) {
	if (node->type == 10) return cuGraphAddMemAllocNode(out, graph, after, count, &node->memory);
	*out = graph;
	return SUCCESS;
}
CALL cuGraphAddNode_v2(void **out, struct graph *graph, const void *after, const void *edges, size_t count, struct any_node *node) {
	(void)edges;
	return cuGraphAddNode(out, graph, after, count, node);
}
CALL cuGraphInstantiateWithFlags(struct graph **out, struct graph *graph, unsigned long long flags) {
	(void)flags;
	*out = calloc(1, sizeof **out);
	(*out)->bytes = graph->bytes;
	graph->ready = 1;
	return SUCCESS;
}
CALL cuGraphLaunch(struct graph *graph, void *stream) {
	(void)stream;
	if (!graph) return SUCCESS;
	struct memory *m = mine();
	m->graph_used += graph->bytes;
	m->graph_reserved += graph->bytes;
	m->used += graph->bytes;
	graph->bytes = 0;
	return SUCCESS;
}
CALL cuGraphDestroy(struct graph *graph) {
	for (int i = 0; !graph->ready && i < graph->nodes; i++) sizes[graph->node[i].pointer >> 20] = 0;
	free(graph);
	return SUCCESS;
}
CALL cuDeviceGraphMemTrim(int device) {
	(void)device;
	struct memory *m = mine();
	size_t unused = m->graph_reserved - m->graph_used;
	m->graph_reserved -= unused;
	m->used -= unused;
	return SUCCESS;
}
CALL cuStreamCreate(void **stream, unsigned flags) { (void)flags; *stream = mine(); return SUCCESS; }
