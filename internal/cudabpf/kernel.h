/* What the programs need of the kernel's types, by name: the loader finds the
 * fields' places in the running kernel (CO-RE), so only these are declared. */
#ifndef LAXITY_KERNEL_H
#define LAXITY_KERNEL_H

#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <stdbool.h>

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

typedef __u8 u8;
typedef __u32 u32;
typedef __u64 u64;
typedef __s64 s64;

struct task_struct {
	struct task_struct *group_leader; /* the process's main thread */
	u64 start_boottime;               /* nanoseconds since boot */
	u32 self_exec_id;                 /* how often it has called exec */
} __attribute__((preserve_access_index));

#define SIGCONT 18
#define SIGSTOP 19

static __always_inline u32 current_tgid(void) { return bpf_get_current_pid_tgid() >> 32; }
static __always_inline u32 current_tid(void) { return bpf_get_current_pid_tgid(); }

/* current_start is when the calling process started, nanoseconds since boot. */
static __always_inline u64 current_start(void)
{
	struct task_struct *task = (void *)bpf_get_current_task();

	return BPF_CORE_READ(task, group_leader, start_boottime);
}

/* current_exec is how often the calling process has called exec. */
static __always_inline u32 current_exec(void)
{
	struct task_struct *task = (void *)bpf_get_current_task();

	return BPF_CORE_READ(task, self_exec_id);
}

#endif
