/* What the exporter's programs tell of what a process did. */
#ifndef LAXITY_EVENT_H
#define LAXITY_EVENT_H

#define RING_BYTES (1 << 20) /* room for two events each, with control groups, of 700 processes */
#include "ring.h"

enum event_kind {
	INIT_CALLED = 1, /* cuInit, for the first time */
	CONTEXT_CALLED,  /* creates or retains a context, for the first time */
	LAUNCHED,        /* launches, while nothing else was at work */
	LAUNCHED_FAST,   /* the same, and launches fast: its launches need not be watched any more */
	DONE,            /* a synchronising call returned, and nothing is at work */
	LEAVING,         /* begins to destroy or release a context */
	LEFT,            /* is through with that */
	EXITING,         /* the last thread begins to exit */
};

struct event {
	u64 time;     /* CLOCK_MONOTONIC, ns */
	u64 start;    /* when the process started, ns since boot; 0 of LAUNCHED, LAUNCHED_FAST and DONE */
	u64 returned; /* of LAUNCHED and LAUNCHED_FAST: when the last call returned after which nothing was at work, as time; 0: none did */
	u32 pid, tid; /* of the first PID namespace */
	enum event_kind kind;
	u32 exec; /* how often the process had called exec; 0 where start is */
};

/* happened is an event of the calling thread, now. */
static __always_inline struct event happened(enum event_kind kind)
{
	struct event e = { .time = bpf_ktime_get_ns() }; /* before all else */
	u64 thread = bpf_get_current_pid_tgid();

	e.pid = thread >> 32;
	e.tid = thread;
	e.kind = kind;
	return e;
}

#endif
