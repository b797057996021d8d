//go:build !linux || !cgo

package subject

import "fmt"

// Serve needs cgo.
func Serve(int) error { return fmt.Errorf("%w: this program was built without cgo", ErrFailed) }
