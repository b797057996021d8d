/* What was told of which process, so that it is told once. */
#ifndef LAXITY_TOLD_H
#define LAXITY_TOLD_H

#include "event.h"

/* told_key tells a process that runs one program from all others: a PID is used again,
 * and exec begins another program. */
struct told_key {
	u64 start;
	u32 pid;
	u32 exec;
	enum event_kind kind;
	u32 pad;
};

/* TOLD is 128 for each of 512 CPUs: before Linux 6.16 each CPU of an LRU map takes 128 free
 * entries at once, and where none are left it recycles those in use, long before the map is
 * full. */
#define TOLD 65536

LRU(told, TOLD, struct told_key, u64); /* → when, ns */
LRU(known, TOLD, u32, u64);            /* PID of a process whose end is to be told → since when, ns */

/* did is happened, with what tells the process from others. */
static __always_inline struct event did(enum event_kind kind)
{
	struct event e = happened(kind);
	struct task_struct *task = (void *)bpf_get_current_task();

	e.start = BPF_CORE_READ(task, group_leader, start_boottime);
	e.exec = BPF_CORE_READ(task, self_exec_id);
	return e;
}

static __always_inline struct told_key as_told(const struct event *e, enum event_kind kind)
{
	return (struct told_key){ .start = e->start, .pid = e->pid, .exec = e->exec, .kind = kind };
}

static __always_inline u64 *when_told(const struct event *e, enum event_kind kind)
{
	struct told_key key = as_told(e, kind);

	return bpf_map_lookup_elem(&told, &key);
}

static __always_inline void forget_told(const struct event *e, enum event_kind kind)
{
	struct told_key key = as_told(e, kind);

	bpf_map_delete_elem(&told, &key);
}

#endif
