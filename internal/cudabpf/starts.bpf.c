//go:build ignore

/* Tells when processes first call cuInit and make a context, and when they leave one. Its
 * programs are on functions that a process calls a few times in its life; every process
 * that maps the library meets them. */
#include "groups.h"
#include "told.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define EEXIST 17

/* REARM is how long after a process made a context the destruction of one lets its next
 * one be told again, nanoseconds: so at most 100 a second are told. */
#define REARM 10000000

const struct event_in_groups *event_in_groups_type __attribute__((unused)); /* so that the object describes it */

/* send_in_groups sends an event with the names of the process's control groups. They are
 * written where the event waits to be read: the stack has no room, and elsewhere a thread
 * on the same CPU may come in between. */
static __always_inline bool send_in_groups(const struct event *e)
{
	struct event_in_groups *to;

	if (!have_groups())
		return send(e, sizeof(*e));
	to = bpf_ringbuf_reserve(&events, sizeof(*to), 0);
	if (!to) {
		count_lost();
		return false;
	}
	to->event = *e;
	name_groups(&to->groups);
	bpf_ringbuf_submit(to, 0);
	return true;
}

/* first tells of a call, once a process and program. */
static __always_inline int first(enum event_kind kind)
{
	struct event e = did(kind);
	struct told_key key = as_told(&e, kind);

	if (bpf_map_update_elem(&told, &key, &e.time, BPF_NOEXIST) == -EEXIST)
		return 0;
	bpf_map_update_elem(&known, &e.pid, &e.time, BPF_ANY);
	if (!send_in_groups(&e))
		bpf_map_delete_elem(&told, &key); /* the next call is told instead */
	return 0;
}

/* init_entry runs when a process calls cuInit. */
SEC("uprobe")
int init_entry(struct pt_regs *ctx)
{
	return first(INIT_CALLED);
}

/* context_entry runs when it creates or retains a context. */
SEC("uprobe")
int context_entry(struct pt_regs *ctx)
{
	return first(CONTEXT_CALLED);
}

/* leave_entry runs when it begins to destroy or release one. Its next context is told
 * again. */
SEC("uprobe")
int leave_entry(struct pt_regs *ctx)
{
	struct event e = did(LEAVING);
	struct told_key key = as_told(&e, LEAVING);
	u64 *made = when_told(&e, CONTEXT_CALLED);

	if (!made || e.time - *made < REARM)
		return 0;
	forget_told(&e, CONTEXT_CALLED);
	bpf_map_update_elem(&told, &key, &e.time, BPF_ANY);
	send(&e, sizeof(e));
	return 0;
}

/* leave_return runs when that is done: it tells so if it told of the begin. */
SEC("uretprobe")
int leave_return(struct pt_regs *ctx)
{
	struct event e = did(LEFT);

	if (!when_told(&e, LEAVING))
		return 0;
	forget_told(&e, LEAVING);
	send(&e, sizeof(e));
	return 0;
}
