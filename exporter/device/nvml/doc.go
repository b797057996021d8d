// Package nvml reads NVIDIA GPUs by the driver's management library.
//
// It needs cgo (go-nvml loads libnvidia-ml.so.1 at run time); in builds without,
// and on other systems, Open returns device.ErrUnavailable.
//
// No NVML function is called unless Init has succeeded and Shutdown has not been
// called: anything else ends the process, because go-nvml's symbols are resolved
// at the first call.
//
// What goes wrong where:
//   - The library or the driver does not answer (not initialised, not loaded, no
//     GPU answers): Read returns an error, shuts NVML down, and the next Read
//     initialises it afresh.
//   - One GPU of several does not answer: it stays in the reading with its
//     identity, MemoryTotal 0, Utilization NaN and ProcessesErr set, so that its
//     tasks are not taken for ended. The identity of a GPU that never answered is
//     unknown-N, with its index; one that we may not use is left out.
//   - Only the process list fails: ProcessesErr is set.
//
// A card in MIG mode is not listed; its instances are. Identities are read again
// every ten seconds, so that MIG instances may come and go.
//
// Clients of an MPS server are asked for by a function of their own, where the library has it, and
// stand in the same list. NVML lists some of them in both lists. Whether it counts the same memory in both
// is not documented: the larger value counts.
//
// The cards' condition has a reader of its own (cards.go), which initialises NVML once more:
// NVML counts those who use it. Each query stands for itself (queries.go): what a card does not
// answer is absent, and a function that the library lacks is not called.
//
// Which process's context was on a card, and how often that changed, NVML does not say. The driver's
// trace of context switches does (switches.go, by internal/rm). Where it cannot be opened both are absent.
//
// The package imports exporter/device, internal/rm, go-nvml and the standard library.
package nvml
