/* How a process is stopped at a call. Package actuator/enforce/stop continues it, and
 * has the model of both sides.
 *
 * The thread that makes the call is the only sender of SIGSTOP there is. It sends
 * it to itself, at the entry of the call, once, when it is on record. */
#ifndef LAXITY_HOLD_H
#define LAXITY_HOLD_H

#include "kernel.h"

/* A hold is one stop of one thread. No two have the same key. */
struct hold_key {
	u32 pid;
	u32 tid;
	u64 time; /* CLOCK_MONOTONIC, ns */
};

enum hold_phase {
	HOLD_RECORDED = 1, /* the thread is about to stop itself */
	HOLD_STOPPED = 2,  /* it has sent SIGSTOP: only now may anybody decide */
};

struct hold {
	u64 start; /* of the process, ns since boot */
	enum hold_phase phase;
	u32 pad;
};

/* holds is the record, written by the programs, and pinned: the guardian reads it
 * after the actuator's death. Who ends a hold deletes it last of all. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct hold_key);
	__type(value, struct hold);
} holds SEC(".maps");

struct release {
	u64 time;      /* CLOCK_MONOTONIC, ns */
	u64 continued; /* 1: SIGCONT was sent, or need not be */
};

/* leases is pinned, and written by the actuator: somebody wants the hold until this
 * time (CLOCK_MONOTONIC, ns). */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct hold_key);
	__type(value, u64);
} leases SEC(".maps");

/* released is pinned, and written by whoever ends a hold, before SIGCONT. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct hold_key);
	__type(value, struct release);
} released SEC(".maps");

/* until is pinned. Nobody is stopped later than that (CLOCK_MONOTONIC, ns). */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} until SEC(".maps");

/* guard_open: nobody has renewed the guard, so every call passes. */
static __always_inline bool guard_open(void)
{
	u32 zero = 0;
	u64 *end = bpf_map_lookup_elem(&until, &zero);

	return !end || bpf_ktime_get_ns() >= *end;
}

/* stop_here stops the calling thread, and with it its process, on record. It
 * returns false if the process does not stop: there is no room on the record, the
 * signal cannot be sent, or the hold was ended meanwhile.
 *
 * The order is what keeps a process from standing still for ever:
 *   this thread:   write the record, send SIGSTOP, look whether the hold was released
 *   who ends it:   mark it released, send SIGCONT
 * Either SIGCONT comes after SIGSTOP, or this thread sees the mark and undoes. */
static __always_inline bool stop_here(struct hold_key *key)
{
	struct hold hold = { .start = current_start(), .phase = HOLD_RECORDED };

	if (bpf_map_update_elem(&holds, key, &hold, BPF_NOEXIST))
		return false;
	if (bpf_send_signal_thread(SIGSTOP)) {
		bpf_map_delete_elem(&holds, key);
		return false;
	}
	hold.phase = HOLD_STOPPED;
	if (!bpf_map_lookup_elem(&released, key) && !guard_open() && !bpf_map_update_elem(&holds, key, &hold, BPF_EXIST))
		return true;
	if (bpf_send_signal(SIGCONT)) { /* it stands, and must be on record: the sweeper finds it */
		bpf_map_update_elem(&holds, key, &hold, BPF_ANY);
		return true;
	}
	bpf_map_delete_elem(&holds, key);
	return false;
}

#endif
