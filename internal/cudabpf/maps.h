/* Maps, a line each. */
#ifndef LAXITY_MAPS_H
#define LAXITY_MAPS_H

#include "kernel.h"

#define HASH(name, flags, size, K, V)               \
	struct {                                    \
		__uint(type, BPF_MAP_TYPE_HASH);    \
		__uint(map_flags, flags);           \
		__uint(max_entries, size);          \
		__type(key, K);                     \
		__type(value, V);                   \
	} name SEC(".maps")

/* LRU is a map that forgets what was used least recently. Its size must leave room for
 * what CPUs take: see TOLD, and LoadMemoryFor, which adds that to the memory guard's. */
#define LRU(name, size, K, V)                       \
	struct {                                    \
		__uint(type, BPF_MAP_TYPE_LRU_HASH); \
		__uint(max_entries, size);          \
		__type(key, K);                     \
		__type(value, V);                   \
	} name SEC(".maps")

#define ARRAY_OF(name, size, V)                     \
	struct {                                    \
		__uint(type, BPF_MAP_TYPE_ARRAY);   \
		__uint(max_entries, size);          \
		__type(key, u32);                   \
		__type(value, V);                   \
	} name SEC(".maps")

#endif
