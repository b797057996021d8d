//go:build race

package ladder_test

// The package starts no goroutine, and the race detector makes the model ten times slower.
func init() { draws = 800 }
