/* Memory is allocated on the GPU of the thread's current context. So of processes that
 * see several GPUs the programs keep on which one each context is, and which contexts
 * a thread has pushed. */
#ifndef LAXITY_CONTEXT_H
#define LAXITY_CONTEXT_H

#include "size.h"

/* making is a context that a thread makes, while that lasts. */
struct making {
	u64 sp;
	u64 out; /* where the handle goes */
	u32 device;
	u32 kind;
};

LRU(makings, 4096, u32, struct making);
LRU(contexts, 8192, struct place, u64); /* → the ordinal of its GPU */

/* current is the contexts of a thread: the lowest byte is the current one, as the
 * ordinal of its GPU and one; 0 is one that nobody knows. Seven may lie below it. */
LRU(current, 16384, struct place, u64);

static __always_inline struct place place_of(struct traced *t, u64 at)
{
	return (struct place){ .epoch = t->totals->epoch, .at = at };
}

/* on_device is the GPU that a request is for: the one that it names, else that of the
 * thread's current context. */
static __always_inline u32 on_device(struct traced *t, u32 named)
{
	struct place thread = place_of(t, t->tid);
	u64 *stack;

	if (t->process->gpus == 1)
		return 0;
	if (named < MAX_GPUS)
		return named;
	stack = bpf_map_lookup_elem(&current, &thread);
	return stack && (u8)*stack ? (u8)*stack - 1 : UNKNOWN;
}

static __always_inline u32 slot_of(struct traced *t, u32 device)
{
	if (device >= MAX_GPUS || device >= t->process->gpus)
		return UNKNOWN;
	return t->process->slots[device & (MAX_GPUS - 1)];
}

/* turn_to makes a GPU the thread's current one: above the one before, or in its place. */
static __always_inline void turn_to(struct traced *t, u8 gpu, bool above)
{
	struct place thread = place_of(t, t->tid);
	u64 *stack = bpf_map_lookup_elem(&current, &thread);
	u64 next = stack ? *stack : 0;

	next = (above ? next << 8 : next & ~0xffull) | gpu;
	bpf_map_update_elem(&current, &thread, &next, BPF_ANY);
}

/* context_entry runs when a context is asked for. */
SEC("uprobe")
int context_entry(struct pt_regs *ctx)
{
	struct traced t;
	struct making m = {};

	if (!trace(ctx, &t) || t.process->gpus == 1)
		return 0;
	m.sp = PT_REGS_SP(ctx);
	m.out = t.args.first;
	m.device = context_device(&t.args, t.kind);
	m.kind = t.kind;
	bpf_map_update_elem(&makings, &t.tid, &m, BPF_ANY);
	return 0;
}

/* context_return runs when it is there. One that was created is the thread's current
 * one; one that was retained is not. */
SEC("uretprobe")
int context_return(struct pt_regs *ctx)
{
	struct traced t;
	struct making *found, m;
	struct place context;
	u64 device;

	if (!trace(ctx, &t) || t.process->gpus == 1)
		return 0;
	found = bpf_map_lookup_elem(&makings, &t.tid);
	if (!found || found->sp + 8 != PT_REGS_SP(ctx))
		return 0;
	m = *found;
	bpf_map_delete_elem(&makings, &t.tid);
	if ((int)PT_REGS_RC(ctx) || m.device >= MAX_GPUS)
		return 0;
	__sync_fetch_and_or(&t.totals->on, 1ull << (m.device & (MAX_GPUS - 1)));
	context = place_of(&t, read_user(m.out));
	device = m.device;
	bpf_map_update_elem(&contexts, &context, &device, BPF_ANY);
	if (m.kind != CONTEXT_ON_SECOND)
		turn_to(&t, m.device + 1, true);
	return 0;
}

/* context_turn runs when a thread changes its current context. */
SEC("uprobe")
int context_turn(struct pt_regs *ctx)
{
	struct traced t;
	struct place thread, context;
	u64 *stack, *device;

	if (!trace(ctx, &t) || t.process->gpus == 1)
		return 0;
	if (t.kind == POP_CONTEXT) {
		thread = place_of(&t, t.tid);
		stack = bpf_map_lookup_elem(&current, &thread);
		if (stack)
			*stack >>= 8;
		return 0;
	}
	context = place_of(&t, t.args.first);
	device = bpf_map_lookup_elem(&contexts, &context);
	turn_to(&t, device ? *device + 1 : 0, t.kind == PUSH_CONTEXT);
	return 0;
}

#endif
