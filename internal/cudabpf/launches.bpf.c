//go:build ignore

/* Tells when chosen processes begin to compute and when their work is done. Its programs
 * are on launches and on calls that wait for the GPU: each costs a trap, some 1 us.
 *
 * Launches and the ends of calls may run at once on several CPUs. launch_entry adds before
 * it looks at what is done; a return changes that before it looks at the launches; both
 * are atomic operations that the CPU does not reorder. So one of the two sees the other,
 * and a process that computes never passes for idle. */
#include "event.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* WAITED is how long a call must have taken to prove that it waited for the GPU,
 * nanoseconds: an asynchronous copy that really is asynchronous returns within a few
 * microseconds. */
#define WAITED 100000

/* A process launches fast when so many launches, a power of two, take less than so many
 * nanoseconds: 2,000 a second. By then its traps have cost as much as taking the probe
 * off and putting it on again, some 1 ms; at fewer a second they cost less than 0.15 % of
 * its time. */
#define FAST_LAUNCHES 1024
#define FAST_WITHIN 512000000

enum pace {
	SLOW,       /* its launches are followed one by one */
	FAST,       /* they are not */
	FAST_AGAIN, /* the first of them will show that it is fast again */
};

/* busy is a process whose launches are followed. User space writes it as a whole. */
struct busy {
	u64 launched; /* count */
	u64 done;     /* how many of these are known to be done */
	u64 mark;     /* when the last FAST_LAUNCHES of them began, ns */
	enum pace pace;
	u32 pad;
};

/* waiting is a call that waits for the GPU, while it lasts. */
struct waiting {
	u64 launched; /* when it began */
	u64 begun;    /* ns */
};

struct thread {
	u32 tid, pid;
};

HASH(busy_of, 0, 4096, u32, struct busy); /* by PID */
/* When a call returned after which nothing was at work, as far as is known, by PID. It is
 * apart from busy, which user space writes: a return at that moment must not be lost. */
HASH(returned, 0, 4096, u32, u64);
HASH(waits, 0, 8192, struct thread, struct waiting); /* not one that drops what is old: a call may wait for an hour */

static __always_inline struct thread current_thread(void)
{
	u64 id = bpf_get_current_pid_tgid();

	return (struct thread){ .tid = id, .pid = id >> 32 };
}

/* is_fast looks at every FAST_LAUNCHES-th launch. */
static __always_inline bool is_fast(struct busy *b, u64 before)
{
	u64 now, mark = b->mark;

	if (before % FAST_LAUNCHES)
		return false;
	now = bpf_ktime_get_ns();
	b->mark = now;
	return now - mark < FAST_WITHIN;
}

/* tell_launch returns false where it was lost. */
static __always_inline bool tell_launch(enum event_kind kind)
{
	struct event e = happened(kind);
	u64 *last = bpf_map_lookup_elem(&returned, &e.pid);

	if (!last)
		return true; /* it is followed no more */
	e.returned = *last;
	return send(&e, sizeof(e));
}

/* launch_entry counts a launch, and tells it if all launches before it are known to be
 * done.
 *
 * It tells too, once, that the process launches fast. From then on a return tells nothing:
 * it looks at the pace after it has read the clock, and here the clock is read after the
 * pace is set, so whatever was told to be done was so before. */
SEC("uprobe")
int launch_entry(struct pt_regs *ctx)
{
	u32 pid = current_tgid();
	struct busy *b = bpf_map_lookup_elem(&busy_of, &pid);
	u64 before;
	bool idle;

	if (!b)
		return 0;
	before = __sync_fetch_and_add(&b->launched, 1);
	idle = before == READ_ONCE(b->done);
	if (is_fast(b, before) || (idle && READ_ONCE(b->pace) == FAST_AGAIN)) {
		if (__sync_lock_test_and_set(&b->pace, FAST) != FAST) {
			if (!tell_launch(LAUNCHED_FAST))
				WRITE_ONCE(b->pace, SLOW); /* nobody has heard of it */
			return 0;
		}
	}
	if (idle)
		tell_launch(LAUNCHED);
	return 0;
}

/* wait_entry notes how much had been launched when a call began that may wait. */
SEC("uprobe")
int wait_entry(struct pt_regs *ctx)
{
	struct thread thread = current_thread();
	struct busy *b = bpf_map_lookup_elem(&busy_of, &thread.pid);
	struct waiting w;

	if (!b)
		return 0;
	w.launched = READ_ONCE(b->launched);
	w.begun = bpf_ktime_get_ns();
	bpf_map_update_elem(&waits, &thread, &w, BPF_ANY);
	return 0;
}

/* all_done: nothing was launched since the call began, so all work is done. That counts
 * again for a call that returns later and had waited: another stream was still at work. Of
 * a process that launches fast every such call counts, as its launches are not seen. */
static __always_inline bool all_done(struct busy *b, struct waiting *w, u64 now, bool may_not_wait)
{
	if (!w->launched || READ_ONCE(b->launched) != w->launched)
		return false;
	if (!may_not_wait && (READ_ONCE(b->pace) == FAST || READ_ONCE(b->done) != w->launched))
		return true;
	return now - w->begun >= WAITED;
}

static __always_inline void note_return(u32 pid, u64 now)
{
	u64 *last = bpf_map_lookup_elem(&returned, &pid);

	if (last && READ_ONCE(*last) < now)
		__sync_lock_test_and_set(last, now);
}

/* wait_over runs when a call returns that may have waited. Of a process that launches fast
 * it tells nothing. When it returned is noted before the call is forgotten: who finds no
 * call under way finds that time. may_not_wait: only a call that took its time counts. */
static __always_inline int wait_over(bool may_not_wait)
{
	struct event e = happened(DONE);
	struct thread thread = { .tid = e.tid, .pid = e.pid };
	struct waiting *found = bpf_map_lookup_elem(&waits, &thread), w;
	struct busy *b;

	if (!found)
		return 0; /* it began before the process was followed */
	w = *found;
	b = bpf_map_lookup_elem(&busy_of, &thread.pid);
	if (!b || !all_done(b, &w, e.time, may_not_wait)) {
		bpf_map_delete_elem(&waits, &thread);
		return 0;
	}
	note_return(thread.pid, e.time);
	bpf_map_delete_elem(&waits, &thread);
	if (READ_ONCE(b->pace) == FAST)
		return 0;
	__sync_lock_test_and_set(&b->done, w.launched);
	if (READ_ONCE(b->launched) == w.launched) /* else one is launched at this moment */
		send(&e, sizeof(e));
	return 0;
}

/* sync_return: the call returns once the GPU work before it is done. */
SEC("uretprobe")
int sync_return(struct pt_regs *ctx)
{
	return wait_over(false);
}

/* copy_return: the call copies to the host, and may or may not have waited. */
SEC("uretprobe")
int copy_return(struct pt_regs *ctx)
{
	return wait_over(true);
}
