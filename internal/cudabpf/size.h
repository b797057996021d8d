/* How much memory a call asks for, and on which GPU. */
#ifndef LAXITY_SIZE_H
#define LAXITY_SIZE_H

#include "memory.h"

/* request is what a call asks for. */
struct request {
	u64 bytes;
	u32 device; /* ordinal of the GPU; UNKNOWN where the call does not name it */
};

static __always_inline u64 times(u64 bytes, u64 n) { return n ? bytes * n : bytes; }

static __always_inline u64 element(u32 format, u64 channels)
{
	u64 bytes = 4;

	if (format == UINT8 || format == SINT8)
		bytes = 1;
	else if (format == UINT16 || format == SINT16 || format == HALF)
		bytes = 2;
	return times(bytes, channels);
}

static __always_inline bool in_device(struct request *r, struct location *l)
{
	if (l->type > IN_DEVICE)
		return false;
	r->device = l->id;
	return true;
}

/* context_device is the argument by which a context's device is named. */
static __always_inline u32 context_device(struct args *a, u32 kind)
{
	switch (kind) {
	case CONTEXT_ON_SECOND:
		return a->second;
	case CONTEXT_ON_THIRD:
		return a->third;
	case CONTEXT_ON_FOURTH:
		return a->fourth;
	case CONTEXT_ON_FIFTH:
		return a->fifth;
	default:
		return UNKNOWN;
	}
}

/* of_context: only the first context on a GPU counts. Every other one shows in the
 * ledger before its size is known. */
static __always_inline bool of_context(struct args *a, struct traced *t, struct request *r)
{
	u32 known = up_to_date(t) ? t->process->contexts : 0;

	r->device = context_device(a, t->kind);
	if (t->process->gpus > 1 && r->device < MAX_GPUS)
		known &= 1 << (r->device & (MAX_GPUS - 1));
	r->bytes = t->process->context;
	return !known;
}

static __always_inline bool of_node(struct args *a, u32 kind, struct request *r)
{
	u64 from = node_params(a, kind);
	struct mem_node node;
	u32 type;

	if (kind != ADD_MEM_NODE) {
		from -= __builtin_offsetof(struct any_node, memory);
		if (bpf_probe_read_user(&type, sizeof(type), (void *)from) || type != NODE_MEM_ALLOC)
			return false;
		from += __builtin_offsetof(struct any_node, memory);
	}
	if (bpf_probe_read_user(&node, sizeof(node), (void *)from))
		return false;
	r->bytes = node.bytes;
	return in_device(r, &node.location);
}

static __always_inline bool of_array_3d(struct args *a, u32 kind, struct request *r)
{
	struct array_3d d;

	if (bpf_probe_read_user(&d, sizeof(d), (void *)a->second))
		return false;
	r->bytes = times(times(d.width, d.height), d.depth) * element(d.format, d.channels);
	/* Each level is a quarter of the one above it; of one dimension, a half. */
	if (kind == MIPMAP && (u32)a->third > 1)
		r->bytes += d.height ? r->bytes / 3 : r->bytes;
	return true;
}

/* asks fills in the request. It returns false if the call takes no memory of a GPU, or
 * fails by itself because its arguments cannot be read. */
static __always_inline bool asks(struct args *a, struct traced *t, struct request *r)
{
	struct mem_prop prop;
	struct array array;

	r->device = UNKNOWN;
	if (is_context(t->kind))
		return of_context(a, t, r);
	switch (t->kind) {
	case ALLOC_PITCH:
		r->bytes = a->third * a->fourth;
		return true;
	case MEM_CREATE:
		r->bytes = a->second;
		if (bpf_probe_read_user(&prop, sizeof(prop), (void *)a->third))
			return true;
		return in_device(r, &prop.location);
	case ARRAY:
		if (bpf_probe_read_user(&array, sizeof(array), (void *)a->second))
			return false;
		r->bytes = times(array.width, array.height) * element(array.format, array.channels);
		return true;
	case ARRAY_3D:
	case MIPMAP:
		return of_array_3d(a, t->kind, r);
	case ADD_MEM_NODE:
	case ADD_NODE_ON_FIFTH:
	case ADD_NODE_ON_SIXTH:
		return of_node(a, t->kind, r);
	default:
		r->bytes = a->second;
		return true;
	}
}

#endif
