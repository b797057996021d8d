/* Arguments of the driver's functions, as NVIDIA's cuda.h has them (CUDA 11.4 to 13). */
#ifndef LAXITY_CUDA_H
#define LAXITY_CUDA_H

#include "kernel.h"

/* Kinds of function: package cudafile's Kind, which sorts them by their names. */
enum kind {
	ALLOC = 6,     /* (ptr *, size) */
	ALLOC_PITCH,   /* (ptr *, pitch *, width, height, …) */
	ALLOC_MANAGED, /* (ptr *, size, …) */
	ALLOC_POOL,    /* (ptr *, size, …) */
	MEM_CREATE,    /* (handle *, size, prop *, …) */
	ARRAY,         /* (array *, descriptor *) */
	ARRAY_3D,      /* (array *, descriptor3d *) */
	MIPMAP,        /* (array *, descriptor3d *, levels) */
	ADD_MEM_NODE,  /* (node *, graph, deps *, n, mem_node *) */
	ADD_NODE_ON_FIFTH, /* (node *, graph, deps *, n, any_node *) */
	ADD_NODE_ON_SIXTH, /* (node *, graph, deps *, edges *, n, any_node *) */
	FREE,          /* (ptr) */
	MEM_INFO,      /* (free *, total *) */
	TOTAL_MEM,     /* (total *, device) */
	CONTEXT_ON_SECOND, /* the argument that names the device */
	CONTEXT_ON_THIRD,
	CONTEXT_ON_FOURTH,
	CONTEXT_ON_FIFTH,
	CONTEXT_ELSE,
	GRAPH_MADE, /* (exec *, graph, …) */
	GRAPH_RUN,  /* (exec, stream) */
	GRAPH_GONE, /* (graph or exec) */
	SET_CONTEXT,
	PUSH_CONTEXT,
	POP_CONTEXT,
};

#define IN_DEVICE 1 /* CU_MEM_LOCATION_TYPE_DEVICE; larger ones are the host's */

struct location {
	u32 type;
	u32 id;
};

struct mem_prop { /* CUmemAllocationProp */
	u32 type;
	u32 handle_types;
	struct location location;
};

struct array { /* CUDA_ARRAY_DESCRIPTOR */
	u64 width, height;
	u32 format, channels;
};

struct array_3d { /* CUDA_ARRAY3D_DESCRIPTOR */
	u64 width, height, depth;
	u32 format, channels;
};

/* CUarray_format. One that is not listed counts as four bytes, the most that any takes. */
enum format { UINT8 = 1, UINT16 = 2, SINT8 = 8, SINT16 = 9, HALF = 0x10 };

struct mem_node { /* CUDA_MEM_ALLOC_NODE_PARAMS */
	u32 alloc_type;
	u32 handle_types;
	struct location location;
	u8 pool[72];
	u64 access;
	u64 accesses;
	u64 bytes;
	u64 pointer; /* the driver fills it in */
};

#define NODE_MEM_ALLOC 10 /* CU_GRAPH_NODE_TYPE_MEM_ALLOC */

struct any_node { /* CUgraphNodeParams */
	u32 type;
	u32 reserved[3];
	struct mem_node memory;
};

static __always_inline bool is_node(u32 kind) { return kind >= ADD_MEM_NODE && kind <= ADD_NODE_ON_SIXTH; }
static __always_inline bool is_question(u32 kind) { return kind == MEM_INFO || kind == TOTAL_MEM; }
static __always_inline bool is_context(u32 kind) { return kind >= CONTEXT_ON_SECOND && kind <= CONTEXT_ELSE; }

/* node_params is where the parameters of a node's memory are, in the process. */
static __always_inline u64 node_params(struct args *a, u32 kind)
{
	switch (kind) {
	case ADD_MEM_NODE:
		return a->fifth;
	case ADD_NODE_ON_FIFTH:
		return a->fifth + __builtin_offsetof(struct any_node, memory);
	default:
		return a->sixth + __builtin_offsetof(struct any_node, memory);
	}
}

#endif
