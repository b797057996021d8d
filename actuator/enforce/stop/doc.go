// Package stop continues processes that stopped themselves at a call, for Laxity to
// decide about it: an allocation of a container with a limit of GPU memory. Nothing
// else in Laxity stops a process by a signal.
//
// # The protocol
//
// A hold is one stop of one thread. Two sides take part: a program in the kernel
// (internal/cudabpf/hold.h), which runs in the thread that calls, and whoever ends the
// hold: the memory guard that has decided, or the guardian.
//
//	the thread:    write the record · send itself SIGSTOP · released? then undo · mark it Stopped
//	who ends it:   mark it Released · send SIGCONT · mark it Continued · forget it
//
// What follows from it:
//
//   - The thread that calls is the only sender of SIGSTOP. It sends it once for each
//     hold, when the record is written. So there is no stop without a record.
//   - Nobody decides about a hold before it is Stopped: the SIGSTOP comes before the
//     SIGCONT. Who ends a hold earlier, since its lease ran out or the guard is opened,
//     marks it Released first: the thread sees that and takes its SIGSTOP back. So no
//     SIGSTOP comes after the SIGCONT.
//   - Who ends a hold that was not Stopped when it was listed goes no further than SIGCONT.
//     The hold stays on record until its thread takes it off, or it is ended once more. So
//     no thread looks for a mark that is forgotten, and a mark that could not be written
//     does no harm.
//   - The phases of a hold only go forward, and no two holds have the same key. So a
//     late step for one hold cannot undo one for another.
//   - SIGCONT wakes a process before it returns. A stop that is seen after it is another
//     hold's, or somebody else's, and nobody's to touch. So a hold is forgotten without
//     waiting for the process.
//   - Who ends holds has opened the process (pidfd) and compared its start time with the
//     record's. So a process that has the PID now is not touched.
//   - Who wants a hold has a lease on it. When it runs out the guardian ends the hold
//     (Sweep), whoever lives: so nobody stands still for long whom nobody wants to.
//   - A SIGSTOP that somebody else sent meanwhile is pending while the process stands.
//     SIGCONT would throw it away; so the process is left to him. It is lost if it comes
//     between Inspect and Continue, or in the moment in which the thread stops itself, or is
//     sent to one thread alone.
//   - Several holds of a process end together, when all are decided and no thread of it
//     runs: SIGCONT is for the whole process. It is looked for threads that run before the
//     holds are listed: a hold that began before is on the list.
//
// Who sends SIGCONT to a held process from outside lets the call run undecided. That is
// reported as slipped, and the container's limit is kept by other means from then on.
//
// A call also runs undecided when who ends its process's holds is late: the guardian has
// ended them, and the thread has made another call, before the late SIGCONT comes.
//
// model_test.go explores all interleavings of these steps, with deaths of everybody at
// every step, late and repeated steps, foreign signals and PIDs that are used again. It
// also shows which rule breaks without each of them.
//
// The package imports the standard library, internal/cudabpf, internal/cudaprobe,
// cilium/ebpf, golang.org/x/sys and actuator/enforce/proc.
package stop
