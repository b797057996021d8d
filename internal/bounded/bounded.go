// Package bounded waits for what may never end, no longer than a limit.
//
// It imports the standard library.
package bounded

import "time"

// Wait calls f in a goroutine, and reports whether f returned within the limit. Otherwise f goes on.
func Wait(limit time.Duration, f func()) (ended bool) {
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}
