//go:build ignore

/* The memory guard's kernel side: it counts what guarded processes allocate, lets
 * through what their container's budget covers, and holds the rest at the entry of
 * the call until user space has decided.
 *
 * Its programs run in chosen processes alone. Each of their calls costs two traps,
 * some 2 us. */
#include "graph.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct block {
	u64 bytes;
	u64 kind;
};

HASH(blocks, BPF_F_NO_PREALLOC, 1 << 17, struct place, struct block); /* by pointer: what pools gave, and managed memory */
LRU(questions, 4096, u32, struct call);                               /* for memory, by thread */

/* allocation is the one that the thread is in. A question is none: it is on record from
 * its return on, and stays there where somebody else than the guard ends its hold. */
static __always_inline struct call *allocation(struct traced *t)
{
	struct call *c = bpf_map_lookup_elem(&calls, &t->tid);

	return c && c->epoch == t->totals->epoch && !is_question(c->kind) ? c : 0;
}

/* nested: the thread is in another allocation that is being counted, higher up its
 * stack. */
static __always_inline bool nested(struct pt_regs *ctx, struct traced *t)
{
	struct call *c = allocation(t);

	return c && c->sp > PT_REGS_SP(ctx);
}

/* pooled: the pools of the process had so much in use before, and have not given it
 * back since. So they have the memory already. */
static __always_inline bool pooled(struct traced *t, u64 bytes)
{
	u64 trimmed = up_to_date(t) ? t->process->trimmed : 0, peak = t->totals->peak;

	if (t->kind != ALLOC_POOL || trimmed >= peak)
		return false;
	peak -= trimmed;
	return bytes <= peak && t->totals->used + bytes <= peak;
}

#define TRIES 32

/* spend counts a call's bytes, and reports whether its budget covers them. If not they
 * are not counted, and somebody is to be asked. Nobody ever sees a count that is taken
 * back: it would be room for another call. */
static __always_inline bool spend(struct traced *t, struct call *c)
{
	u64 seen = up_to_date(t) ? t->process->seen : 0;
	struct budget *b;
	struct spent *s;

	if (is_node(c->kind) && !t->process->follows)
		return false;
	if (t->totals->contexts != seen) /* how large they are is a guess until the ledger shows them */
		return false;
	if (c->size >> TOO_MUCH)
		return false;
	b = bpf_map_lookup_elem(&budgets, &c->slot);
	s = bpf_map_lookup_elem(&spent_on, &c->slot);
	if (!b || !s)
		return false;
	for (int i = 0; i < TRIES; i++) {
		u64 bytes = *(volatile u64 *)&s->bytes;

		if (bytes + c->size > b->ceiling)
			return false;
		if (__sync_val_compare_and_swap(&s->bytes, bytes, bytes + c->size) == bytes) {
			add(&s->passed, 1);
			return true;
		}
	}
	return false; /* too many threads at once */
}

static __always_inline void set_state(u32 tid, u32 state)
{
	struct call *c = bpf_map_lookup_elem(&calls, &tid);

	if (c)
		c->state = state;
}

/* hold stops the process of a call until user space has decided. Where that cannot be
 * the call runs. */
static __always_inline void hold(struct traced *t, struct call *c)
{
	struct hold_key key = { .pid = t->pid, .tid = t->tid, .time = c->time };
	struct spent *s;

	if (!guard_open() && stop_here(&key)) {
		report(t, EVENT_HELD);
		return;
	}
	if (is_question(c->kind)) {
		bpf_map_delete_elem(&calls, &t->tid);
		return;
	}
	set_state(t->tid, CALL_GRANTED);
	s = bpf_map_lookup_elem(&spent_on, &c->slot);
	if (s)
		add(&s->opened, 1);
}

static __always_inline void begin_call(struct pt_regs *ctx, struct traced *t, struct call *c)
{
	c->sp = PT_REGS_SP(ctx);
	c->entry = PT_REGS_IP(ctx);
	c->out = t->args.first;
	c->time = bpf_ktime_get_ns();
	c->epoch = t->totals->epoch;
	c->pid = t->pid;
	c->kind = t->kind;
}

/* alloc_entry runs at the entry of every function that allocates, or makes a context. */
SEC("uprobe")
int alloc_entry(struct pt_regs *ctx)
{
	struct request r = {};
	struct call c = {};
	struct traced t;

	if (!trace(ctx, &t) || nested(ctx, &t) || !asks(&t.args, &t, &r))
		return 0;
	begin_call(ctx, &t, &c);
	c.size = r.bytes;
	c.slot = slot_of(&t, on_device(&t, r.device));
	c.state = pooled(&t, r.bytes) ? CALL_FREE : CALL_SPENT;
	if (is_node(t.kind)) {
		c.out = t.args.second;
		c.more = node_params(&t.args, t.kind);
	}
	bpf_map_update_elem(&calls, &t.tid, &c, BPF_ANY); /* before it is spent: it counts as one or the other */
	if (c.state == CALL_FREE || spend(&t, &c))
		return 0;
	set_state(t.tid, CALL_HELD);
	hold(&t, &c);
	return 0;
}

/* keep notes by its address memory that the ledger does not show. */
static __always_inline void keep(struct traced *t, struct call *c)
{
	struct place key = place_of(t, read_user(c->out));
	struct block b = { .bytes = c->size, .kind = c->kind };
	u64 used;

	if (bpf_map_update_elem(&blocks, &key, &b, BPF_ANY))
		return;
	if (c->kind == ALLOC_MANAGED) {
		add(&t->totals->managed, c->size);
		return;
	}
	used = __sync_fetch_and_add(&t->totals->used, c->size) + c->size;
	if (used > t->totals->peak) /* two at once may leave the smaller one: the next call is asked about */
		t->totals->peak = used;
}

/* alloc_return runs at the return of such a function. */
SEC("uretprobe")
int alloc_return(struct pt_regs *ctx)
{
	struct call *found, c;
	struct traced t;
	struct spent *s;

	if (!trace(ctx, &t))
		return 0;
	found = allocation(&t);
	if (!found || found->sp + 8 != PT_REGS_SP(ctx))
		return 0;
	c = *found;
	if ((int)PT_REGS_RC(ctx)) {
		bpf_map_delete_elem(&calls, &t.tid);
		s = c.state == CALL_SPENT ? bpf_map_lookup_elem(&spent_on, &c.slot) : 0;
		if (s)
			add(&s->failed, c.size);
		return 0;
	}
	if (is_node(c.kind))
		add_node(&t, &c); /* before the call is over: at every moment it counts as one or the other */
	bpf_map_delete_elem(&calls, &t.tid);
	if (c.kind == ALLOC_POOL || c.kind == ALLOC_MANAGED)
		keep(&t, &c);
	else if (is_context(c.kind))
		add(&t.totals->contexts, 1);
	if (c.state == CALL_HELD)
		report(&t, EVENT_SLIPPED);
	return 0;
}

/* free_entry runs at the entry of a function that frees memory. */
SEC("uprobe")
int free_entry(struct pt_regs *ctx)
{
	struct block *found, b;
	struct traced t;
	struct place key;

	if (!trace(ctx, &t))
		return 0;
	key = place_of(&t, t.args.first);
	found = bpf_map_lookup_elem(&blocks, &key);
	if (!found)
		return 0;
	b = *found;
	if (bpf_map_delete_elem(&blocks, &key)) /* two frees of one address: one counts */
		return 0;
	add(b.kind == ALLOC_MANAGED ? &t.totals->managed : &t.totals->used, -b.bytes);
	return 0;
}

/* question_entry runs when a process asks how much memory there is. */
SEC("uprobe")
int question_entry(struct pt_regs *ctx)
{
	u32 device = UNKNOWN;
	struct call c = {};
	struct traced t;

	if (!trace(ctx, &t))
		return 0;
	begin_call(ctx, &t, &c);
	c.more = t.args.second;
	if (t.kind == TOTAL_MEM) {
		device = t.args.second;
		c.more = c.out;
		c.out = 0;
	}
	c.slot = slot_of(&t, on_device(&t, device));
	bpf_map_update_elem(&questions, &t.tid, &c, BPF_ANY);
	return 0;
}

/* question_return runs when the driver has answered. Where a limit is to be shown the
 * thread is held as if it were in an allocation of nothing, for user space to lower
 * the answer. (A program could write it, but not where the kernel is locked down.) */
SEC("uretprobe")
int question_return(struct pt_regs *ctx)
{
	struct budget *b;
	struct call *found, c;
	struct traced t;

	if (!trace(ctx, &t))
		return 0;
	found = bpf_map_lookup_elem(&questions, &t.tid);
	if (!found || found->epoch != t.totals->epoch || found->sp + 8 != PT_REGS_SP(ctx))
		return 0;
	c = *found;
	bpf_map_delete_elem(&questions, &t.tid);
	b = bpf_map_lookup_elem(&budgets, &c.slot);
	if ((int)PT_REGS_RC(ctx) || !b || !b->limit || guard_open())
		return 0;
	c.time = bpf_ktime_get_ns();
	c.entry = PT_REGS_IP(ctx);
	c.state = CALL_HELD;
	bpf_map_update_elem(&calls, &t.tid, &c, BPF_ANY);
	hold(&t, &c);
	return 0;
}
