//go:build race

package boltfile_test

// The race detector ends the program at the first pointer that bbolt makes from a damaged
// page; without it that is a fault, which is recovered.
const race = true
