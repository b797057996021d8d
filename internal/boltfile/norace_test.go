//go:build !race

package boltfile_test

const race = false
