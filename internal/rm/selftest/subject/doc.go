// Package subject is the helper process of the self-test on a real GPU: one context and one tiny
// kernel, through libcuda, which it loads at the first call. It imports internal/rm/ptx and the
// standard library.
package subject

import "errors"

// ErrFailed means that the helper could not work: the reason is in the shared memory.
var ErrFailed = errors.New("the helper of the self-test failed")
