/* What the memory guard's programs share with each other and with user space. */
#ifndef LAXITY_MEMORY_H
#define LAXITY_MEMORY_H

#include "cuda.h"
#include "hold.h"

#define RING_BYTES (256 << 10)
#include "ring.h"

#define SLOTS 1024        /* budgets: one for each container and GPU */
#define MAX_GPUS 16       /* that are told apart in one process */
#define UNKNOWN ((u32)-1) /* a GPU or slot that nobody knows: somebody is asked */
#define TOO_MUCH 50       /* as a power of two: no GPU has as many bytes, so they are added to nothing */

/* process is what user space says of a guarded process. */
struct process {
	u64 context; /* bytes that its first context on a GPU counts for */
	u64 trimmed; /* bytes of its pools' peak that went back to the driver */
	u64 seen;    /* contexts that the ledger shows */
	u64 epoch;   /* the program that trimmed, seen and contexts are about */
	u64 began;   /* when the process started, as /proc has it: 10 ms since boot; 0: any */
	u32 set;     /* the set of probes that counts: another one is being taken off */
	u32 gpus;    /* how many it sees */
	u32 contexts; /* bit set of the ordinals of those on which it has a context */
	u32 follows;  /* its graphs are followed */
	u32 slots[MAX_GPUS]; /* by ordinal: as the process counts GPUs */
};

/* totals is what the programs have counted of a process, bytes but for the counts. */
struct totals {
	u64 used;     /* given out by its pools */
	u64 peak;     /* at least so much its pools have got from the driver */
	u64 managed;  /* managed memory */
	u64 graphs;   /* what its graphs will get when they are launched */
	u64 contexts; /* count: made, and counted before they were there */
	u64 on;       /* bit set of the ordinals of the GPUs on which it has made one; with one GPU nobody asks */
	u64 stage;    /* changes when a graph with memory is made ready or destroyed: older nodes share memory with no later one */
	u64 epoch;    /* another number for each program that runs in a process; no two have the same */
	u64 exec;     /* how often it had called exec when epoch began; 0: not known yet */
};

enum call_state {
	CALL_FREE,    /* its pool has the memory already */
	CALL_SPENT,   /* it is counted in its slot's spent bytes */
	CALL_HELD,    /* its thread is held */
	CALL_GRANTED, /* somebody granted it, or the guard is open */
};

/* call is an allocation, or a question for memory, under way in one thread. */
struct call {
	u64 size;
	u64 sp;    /* the stack pointer at its entry, which points to the return address */
	u64 entry; /* address of the function; of a question that is held, where it returns to */
	u64 out;   /* its first argument: where the result goes; of a node, the graph */
	u64 more;  /* of a node, where its parameters are; of a question, where the total goes */
	u64 time;  /* CLOCK_MONOTONIC, ns; of a held one, the hold's */
	u64 epoch;
	u32 pid;
	u32 slot;
	enum kind kind;
	enum call_state state;
};

/* spent only grows, so that who reads it and sets the ceiling from it gives no room twice. */
struct spent {
	u64 failed; /* bytes of calls that were let through and failed; read before bytes */
	u64 bytes;  /* let through in the kernel */
	u64 passed; /* calls let through with nobody asked */
	u64 opened; /* calls beyond the ceiling that passed because the guard is open */
};

struct budget {
	u64 ceiling; /* a call passes while the slot's spent bytes stay within it */
	u64 limit;   /* not 0: processes that ask how much memory there is are held, to be shown this */
};

enum event_kind {
	EVENT_HELD = 1,    /* a thread was stopped at its call */
	EVENT_SLIPPED = 2, /* a held call ran to its end: somebody else continued its process */
};

struct event {
	u64 time; /* CLOCK_MONOTONIC, ns */
	u32 pid;
	u32 tid;
	enum event_kind kind;
	u32 pad;
};

const struct event *event_type __attribute__((unused)); /* so that the object describes it */

/* place is a key of something within one program's life. */
struct place {
	u64 epoch;
	u64 at; /* a pointer, a handle, or a thread */
};

HASH(processes, 0, 4096, u32, struct process);
HASH(totals_of, 0, 4096, u32, struct totals);
HASH(calls, BPF_F_NO_PREALLOC, 16384, u32, struct call); /* by thread */
ARRAY_OF(spent_on, SLOTS, struct spent);                    /* which only the programs write */
ARRAY_OF(budgets, SLOTS, struct budget);                 /* which only user space writes */

static __always_inline void add(u64 *to, u64 bytes) { __sync_fetch_and_add(to, bytes); }

static u64 epochs; /* begun here so far; user space's are beyond 2^32 */

/* begin_epoch forgets what was counted of another program in the same process, which
 * exec has replaced. */
static __always_inline void begin_epoch(struct totals *t)
{
	u64 exec = current_exec(), known = t->exec;

	if (known == exec || __sync_val_compare_and_swap(&t->exec, known, exec) != known)
		return;
	if (!known) /* the epoch that user space began */
		return;
	t->used = t->peak = t->managed = t->graphs = t->contexts = t->on = 0;
	t->epoch = __sync_fetch_and_add(&epochs, 1) + 1;
}

/* traced is what a program knows of the call that it runs at. */
struct traced {
	struct process *process;
	struct totals *totals;
	u32 pid, tid;
	u32 kind;
	struct args args; /* at an entry */
};

#define TICK 10000000 /* ns: what /proc counts the start of processes in */

/* trace fills that in. It returns false where the process is not guarded (another one
 * may have its PID), or not by this set of probes: one that is being taken off does
 * nothing. */
static __always_inline bool trace(struct pt_regs *ctx, struct traced *to)
{
	u64 cookie = bpf_get_attach_cookie(ctx); /* the kind, and the set above it */

	read_args(ctx, &to->args);
	to->pid = current_tgid();
	to->tid = current_tid();
	to->kind = cookie & 0xff;
	to->process = bpf_map_lookup_elem(&processes, &to->pid);
	if (!to->process || to->process->set != cookie >> 8)
		return false;
	if (to->process->began && to->process->began != current_start() / TICK)
		return false;
	to->totals = bpf_map_lookup_elem(&totals_of, &to->pid);
	if (!to->totals)
		return false;
	begin_epoch(to->totals);
	return true;
}

/* up_to_date: what user space says of the process is about the program that runs. */
static __always_inline bool up_to_date(struct traced *t) { return t->process->epoch == t->totals->epoch; }

static __always_inline u64 read_user(u64 from)
{
	u64 value = 0;

	bpf_probe_read_user(&value, sizeof(value), (void *)from);
	return value;
}

static __always_inline void report(struct traced *t, u32 kind)
{
	struct event e = { .time = bpf_ktime_get_ns(), .pid = t->pid, .tid = t->tid, .kind = kind };

	send(&e, sizeof(e));
}

#endif
