// Package memory keeps containers from holding more GPU memory than they may:
// an allocation that would exceed the limit returns CUDA's own out-of-memory
// error to the program, which can go on. Nothing is injected into the program.
//
// # How
//
// Probes on the driver's allocation calls, in the processes of limited containers
// alone, count what they ask for. A call that is clearly within the limit passes
// in the kernel. Near the limit the kernel program records the call and stops the process at the
// call's entry, and a Decider answers. What a container holds is the usage (Options.Usage) and
// what calls under way ask for.
//
// # Nobody stays stopped
//
// Package actuator/enforce/stop has the protocol by which processes are continued, and
// its model. A call that cannot be denied runs, and the guard calls Failed, so that the actuator can
// pause the container.
//
// It imports actuator/enforce/proc, actuator/enforce/stop, exporter/task, internal/bounded, internal/cudaprobe,
// internal/cudaprobe/cudafile, internal/statefolder, golang.org/x/sys and the standard library.
package memory
