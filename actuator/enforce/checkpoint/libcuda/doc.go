// Package libcuda calls the checkpoint functions of the CUDA driver library, which it
// loads at run time. It is for the helper process alone: a bug in the library takes
// its process along.
package libcuda

// Library is the driver library at the moment it was opened.
//
//   - Version is the CUDA version that it speaks (13000 for 13.0); 0 if unknown.
//   - Missing are the checkpoint functions that it does not have.
type Library struct {
	Version int
	Missing []string

	functions functions
}
