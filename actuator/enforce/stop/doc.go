// Package stop continues processes that stopped at an allocation of GPU memory until Laxity decided
// about it. Only containers with a limit of GPU memory stop there. Nothing else in Laxity stops a
// process by a signal.
//
// # The protocol
//
// A hold is one stop of one thread. Two sides take part: a kernel program
// (internal/cudabpf/hold.h), which runs in the thread that calls, and the ender, which ends the
// hold: the memory guard once it has decided, or the guardian.
//
//	the thread:   write the record · send itself SIGSTOP · released? then undo · mark it Stopped
//	the ender:    mark it Released · send SIGCONT · mark it Continued · forget it
//
// What follows from it:
//
//   - Only the calling thread sends SIGSTOP, once for each hold, after it has written the record.
//     So no process is stopped without a record.
//   - Nobody decides about a hold before it is Stopped, so the SIGSTOP comes before the SIGCONT. An
//     ender that is earlier, because the lease ran out or the guard was opened, marks the hold
//     Released first. The thread sees the mark and takes its SIGSTOP back. So no SIGSTOP comes
//     after the SIGCONT.
//   - If a hold was not Stopped when it was listed, its ender sends SIGCONT and leaves the hold on
//     record. Its thread removes the hold, or a later ender does. So a thread always finds the
//     mark that it looks for, and a mark that could not be written does no harm.
//   - The phases of a hold only go forward, and no two holds have the same key. So a
//     late step for one hold cannot undo a step for another.
//   - SIGCONT wakes the process before the call returns. A stop that is seen afterwards belongs to
//     another hold or to another program. So the ender forgets a hold without waiting for the
//     process.
//   - The ender opens the process (pidfd) and compares its start time with the record. So it
//     does not touch another process that got the same PID.
//   - Every hold has a lease. When the lease runs out the guardian ends the hold (Sweep), also while
//     the actuator lives. So no process stays stopped for long unless somebody wants it to.
//   - A SIGSTOP that another program sends to a stopped process stays pending. SIGCONT would discard
//     it; so the ender leaves such a process to that program. The SIGSTOP is lost if it comes
//     between Inspect and Continue, or while the thread stops itself, or if it goes to one thread
//     alone.
//   - SIGCONT continues the whole process. So several holds of a process end together, once all
//     are decided and none of its threads runs. The ender looks for running threads before it lists
//     the holds: then every hold that such a thread began is on the list.
//
// If another program sends SIGCONT to a held process, the call runs undecided. The record reports
// the hold as slipped, and the actuator keeps the container's limit by pausing it.
//
// A call also runs undecided if an ender is late: the guardian ended the holds of the process, and
// the thread made another call before the late SIGCONT came.
//
// model_test.go explores all interleavings of these steps, with deaths of everybody at
// every step, late and repeated steps, foreign signals and PIDs that are used again. It
// also shows which rule breaks without each of them.
//
// The package imports the standard library, internal/cudabpf, internal/cudaprobe,
// cilium/ebpf, golang.org/x/sys and actuator/enforce/proc.
package stop
