// Package ptx holds the kernels of the self-test and of the tests on real GPUs, for every GPU since
// Maxwell. It imports the standard library only.
package ptx

import _ "embed" // for the text

// Text is the source of the kernels spin(stop, beat, ended *uint32, clocks uint64) and
// step(count, beat *uint32, clocks uint64), as cuModuleLoadData takes it.
//
//go:embed kernels.ptx
var Text string
