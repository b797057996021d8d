// Package memory keeps containers from holding more GPU memory than they may:
// an allocation that would exceed the limit returns CUDA's own out-of-memory
// error to the program, which can go on. Nothing is injected into anybody.
//
// # How
//
// Probes on the driver's allocation calls, in the processes of limited containers
// alone, count what they ask for. A call that is clearly within the limit passes
// in the kernel. Near the limit its process is stopped at the entry of the call,
// on record, and a Decider answers: Limit knows limits alone. What a container
// holds is what the device says (the Ledger) and what is under way.
//
// # Nobody stays stopped
//
// Package actuator/enforce/stop has the protocol by which processes are continued, and
// its model. Where a call cannot be denied it runs, and Failed is called, for somebody to
// pause the container.
//
// It imports actuator/enforce/proc, actuator/enforce/stop, exporter/task, internal/cudaprobe,
// internal/cudaprobe/cudafile, golang.org/x/sys and the standard library.
package memory
