/* A node that is added to a graph by hand may ask for memory, which the process gets
 * when the graph is launched: only then does the ledger show it. Until then it counts
 * in totals.graphs, kept by graph; one that is made ready hands it on to what is
 * launched. The driver makes a graph that has such nodes ready once at a time. */
#ifndef LAXITY_GRAPH_H
#define LAXITY_GRAPH_H

#include "context.h"

/* node is the latest one that got a pointer. */
struct node {
	u64 graph;
	u64 stage;
	u64 bytes;
};

/* graph_call is a call about a graph, while it lasts. */
struct graph_call {
	u64 sp;
	u64 first, second; /* its arguments */
	u64 kind;
};

HASH(graphs, BPF_F_NO_PREALLOC, 1 << 17, struct place, u64); /* bytes that it will get */
LRU(nodes, 8192, struct place, struct node);                  /* by pointer */
LRU(graph_calls, 4096, u32, struct graph_call);

static __always_inline bool add_to_graph(struct traced *t, u64 graph, u64 bytes)
{
	struct place key = place_of(t, graph);
	u64 *sum = bpf_map_lookup_elem(&graphs, &key);

	if (sum) {
		add(sum, bytes);
		return true;
	}
	return !bpf_map_update_elem(&graphs, &key, &bytes, BPF_ANY);
}

/* take_graph takes away what is kept of a graph, and begins another stage. It returns
 * false where nothing is kept: of two at once one succeeds. */
static __always_inline bool take_graph(struct traced *t, u64 graph, u64 *bytes)
{
	struct place key = place_of(t, graph);
	u64 *sum = bpf_map_lookup_elem(&graphs, &key);

	if (!sum)
		return false;
	*bytes = *sum;
	if (bpf_map_delete_elem(&graphs, &key))
		return false;
	add(&t->totals->stage, 1);
	return true;
}

/* beyond_former is what a node takes beyond a former one of the same graph at the same
 * address: the driver gives memory again that is freed within the graph. */
static __always_inline u64 beyond_former(struct traced *t, u64 graph, u64 params, u64 bytes)
{
	u64 pointer = read_user(params + __builtin_offsetof(struct mem_node, pointer)), former;
	struct place key = place_of(t, pointer);
	struct node new = { .graph = graph, .stage = t->totals->stage, .bytes = bytes };
	struct node *n;

	if (!pointer)
		return bytes;
	n = bpf_map_lookup_elem(&nodes, &key);
	if (!n || n->graph != graph || n->stage != new.stage) {
		bpf_map_update_elem(&nodes, &key, &new, BPF_ANY);
		return bytes;
	}
	former = n->bytes;
	if (former >= bytes)
		return 0;
	n->bytes = bytes;
	return bytes - former;
}

/* add_node notes a node that was added. Where nobody follows the process's graphs it
 * would count for ever. */
static __always_inline void add_node(struct traced *t, struct call *c)
{
	u64 bytes;

	if (!t->process->follows)
		return;
	bytes = beyond_former(t, c->out, c->more, c->size);
	if (bytes && add_to_graph(t, c->out, bytes))
		add(&t->totals->graphs, bytes);
}

/* graph_entry runs when a graph is made ready or launched. */
SEC("uprobe")
int graph_entry(struct pt_regs *ctx)
{
	struct traced t;
	struct graph_call c = {};

	if (!trace(ctx, &t))
		return 0;
	c.sp = PT_REGS_SP(ctx);
	c.first = t.args.first;
	c.second = t.args.second;
	c.kind = t.kind;
	bpf_map_update_elem(&graph_calls, &t.tid, &c, BPF_ANY);
	return 0;
}

/* graph_return runs when that has been done. From the return of a launch on the ledger
 * shows the graph's memory. */
SEC("uretprobe")
int graph_return(struct pt_regs *ctx)
{
	struct traced t;
	struct graph_call *found, c;
	u64 bytes;

	if (!trace(ctx, &t))
		return 0;
	found = bpf_map_lookup_elem(&graph_calls, &t.tid);
	if (!found || found->sp + 8 != PT_REGS_SP(ctx))
		return 0;
	c = *found;
	bpf_map_delete_elem(&graph_calls, &t.tid);
	if ((int)PT_REGS_RC(ctx))
		return 0;
	if (c.kind == GRAPH_MADE) {
		if (take_graph(&t, c.second, &bytes))
			add_to_graph(&t, read_user(c.first), bytes);
	} else if (take_graph(&t, c.first, &bytes)) {
		add(&t.totals->graphs, -bytes);
	}
	return 0;
}

/* graph_gone runs when a graph is destroyed: what it was not made ready for it will
 * not get. */
SEC("uprobe")
int graph_gone(struct pt_regs *ctx)
{
	struct traced t;
	u64 bytes;

	if (trace(ctx, &t) && take_graph(&t, t.args.first, &bytes))
		add(&t.totals->graphs, -bytes);
	return 0;
}

#endif
