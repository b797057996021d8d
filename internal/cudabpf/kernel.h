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

#define KERNEL_TYPE __attribute__((preserve_access_index))

struct atomic {
	int counter;
} KERNEL_TYPE;

/* signal_struct is what the threads of a process share. */
struct signal_struct {
	struct atomic live; /* how many of them have not begun to exit */
} KERNEL_TYPE;

struct css_set;

struct task_struct {
	struct task_struct *group_leader; /* the process's main thread */
	u64 start_boottime;               /* nanoseconds since boot */
	u32 self_exec_id;                 /* how often it has called exec */
	struct signal_struct *signal;
	struct css_set *cgroups;
} KERNEL_TYPE;

/* args are the first six arguments of a call. They are read at once, each from its
 * own place: the verifier refuses a place that is chosen while the program runs. */
struct args {
	u64 first, second, third, fourth, fifth, sixth;
};

static __always_inline void read_args(struct pt_regs *ctx, struct args *a)
{
	a->first = PT_REGS_PARM1(ctx);
	barrier_var(a->first);
	a->second = PT_REGS_PARM2(ctx);
	barrier_var(a->second);
	a->third = PT_REGS_PARM3(ctx);
	barrier_var(a->third);
	a->fourth = PT_REGS_PARM4(ctx);
	barrier_var(a->fourth);
	a->fifth = PT_REGS_PARM5(ctx);
	barrier_var(a->fifth);
	a->sixth = ctx->r9;
	barrier_var(a->sixth);
}

#define SIGCONT 18
#define SIGSTOP 19

/* READ_ONCE and WRITE_ONCE go to memory, here and now. */
#define READ_ONCE(x) (*(const volatile typeof(x) *)&(x))
#define WRITE_ONCE(x, value) (*(volatile typeof(x) *)&(x) = (value))

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
