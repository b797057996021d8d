/* What programs tell user space goes through a ring buffer of RING_BYTES, which whoever
 * includes this defines. What finds no room there is counted. */
#ifndef LAXITY_RING_H
#define LAXITY_RING_H

#include "maps.h"

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RING_BYTES);
} events SEC(".maps");

ARRAY_OF(lost, 1, u64); /* events that had no room */

static __always_inline void count_lost(void)
{
	u32 zero = 0;
	u64 *count = bpf_map_lookup_elem(&lost, &zero);

	if (count)
		__sync_fetch_and_add(count, 1);
}

/* send returns false where the event is lost. */
static __always_inline bool send(const void *event, u64 size)
{
	if (!bpf_ringbuf_output(&events, (void *)event, size, 0))
		return true;
	count_lost();
	return false;
}

#endif
