/* The names of a process's control groups, in one of which is the id of its container. */
#ifndef LAXITY_GROUPS_H
#define LAXITY_GROUPS_H

#include "event.h"

#define GROUP_NAME 160      /* bytes, with the NUL: the longest that engines make has 145 */
#define GROUP_NAME_LEAST 64 /* a container's name holds its id, 64 digits; shorter ones are not told */
#define GROUP_SLOTS 4       /* a power of two */
#define GROUP_LEVELS 24     /* a path that is longer names none, for its begin is not seen */

/* groups holds the outermost of the names, since below its own group a container may make
 * any number of others: one less than there are slots, because a name must be read
 * somewhere to see how long it is. */
struct groups {
	u32 count; /* of names, the innermost first; name n is in slot n % GROUP_SLOTS */
	u32 pad;
	u8 names[GROUP_SLOTS][GROUP_NAME];
};

struct event_in_groups {
	struct event event;
	struct groups groups;
};

struct kernfs_node {
	const char *name;
} KERNEL_TYPE;

struct cgroup;

/* From a group up goes the state of a controller, whose names in the kernel have stayed
 * the same for longer than those of kernfs. */
struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
} KERNEL_TYPE;

struct cgroup {
	struct cgroup_subsys_state self; /* without a controller */
	struct kernfs_node *kn;
} KERNEL_TYPE;

struct css_set {
	struct cgroup_subsys_state *subsys[1]; /* by controller */
	struct cgroup *dfl_cgrp;               /* of cgroup v2 */
} KERNEL_TYPE;

enum cgroup_subsys_id { devices_cgrp_id };

/* have_groups: the kernel has control groups, as they are known here. */
static __always_inline bool have_groups(void)
{
	return bpf_core_field_exists(struct task_struct, cgroups) &&
	       bpf_core_field_exists(struct css_set, subsys) && bpf_core_field_exists(struct css_set, dfl_cgrp) &&
	       bpf_core_field_exists(struct cgroup, self) && bpf_core_field_exists(struct cgroup, kn) &&
	       bpf_core_field_exists(struct cgroup_subsys_state, cgroup) &&
	       bpf_core_field_exists(struct cgroup_subsys_state, parent) &&
	       bpf_core_field_exists(struct kernfs_node, name);
}

/* name_up notes the names of a group and of those above it. The count is in memory alone:
 * in a register the verifier would look at each count of each level by itself. */
static __always_inline void name_up(struct groups *g, struct cgroup_subsys_state *state)
{
	u32 n;

#pragma clang loop unroll(disable)
	for (int level = 0; level < GROUP_LEVELS; level++) {
		n = READ_ONCE(g->count);
		if (bpf_probe_read_kernel_str(g->names[n % GROUP_SLOTS], GROUP_NAME, BPF_CORE_READ(state, cgroup, kn, name)) > GROUP_NAME_LEAST)
			WRITE_ONCE(g->count, n + 1);
		state = BPF_CORE_READ(state, parent);
		if (!state)
			return;
	}
	WRITE_ONCE(g->count, 0);
}

/* name_groups notes those of the controller for devices, in which every engine puts its
 * containers on cgroup v1, else those of v2. */
static __always_inline void name_groups(struct groups *g)
{
	struct css_set *set = BPF_CORE_READ((struct task_struct *)bpf_get_current_task(), cgroups);
	struct cgroup_subsys_state *devices = 0;

	WRITE_ONCE(g->count, 0);
	if (bpf_core_enum_value_exists(enum cgroup_subsys_id, devices_cgrp_id)) {
		bpf_probe_read_kernel(&devices, sizeof(devices), &set->subsys[0] + bpf_core_enum_value(enum cgroup_subsys_id, devices_cgrp_id));
		name_up(g, devices);
		if (READ_ONCE(g->count))
			return;
	}
	name_up(g, &BPF_CORE_READ(set, dfl_cgrp)->self);
}

#endif
