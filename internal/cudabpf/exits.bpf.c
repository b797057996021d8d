//go:build ignore

/* Tells that the last thread of a process begins to exit. The kernel's tracepoint comes
 * before the process lets go of its memory and files; letting go of a GPU takes the
 * driver some 0.1 s, and only after that does a pidfd tell of the end. */
#include "told.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* thread_exit runs for every thread of the machine. Processes that are known are told: by
 * a call of theirs that was told, or by user space. */
SEC("raw_tp/sched_process_exit")
int thread_exit(void *ctx)
{
	struct event e;
	u32 pid = current_tgid();

	if (!bpf_map_lookup_elem(&known, &pid))
		return 0;
	if (BPF_CORE_READ((struct task_struct *)bpf_get_current_task(), signal, live.counter))
		return 0; /* other threads go on */
	if (bpf_map_delete_elem(&known, &pid))
		return 0; /* another thread that exits now was faster */
	e = did(EXITING);
	forget_told(&e, INIT_CALLED);
	forget_told(&e, CONTEXT_CALLED);
	forget_told(&e, LEAVING);
	send(&e, sizeof(e));
	return 0;
}
