// Package subject is the helper process of the self-test on a real GPU: one context, one
// tiny kernel, through libcuda, which is loaded when it is called. It imports internal/rm/ptx
// and the standard library.
package subject

import "errors"

// ErrFailed means that the helper could not work: the reason is in the memory that it shares.
var ErrFailed = errors.New("the helper of the self-test failed")
