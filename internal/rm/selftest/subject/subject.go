//go:build linux && cgo

package subject

/*
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "subject.h"
*/
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/laxity/laxity/internal/rm/ptx"
)

// Serve is the whole helper process: it does what the memory fd asks for, until standard input
// ends. The environment selects the card.
func Serve(fd int) error {
	text := C.CString(ptx.Text)
	defer C.free(unsafe.Pointer(text))
	if code := C.laxity_subject(C.int(fd), text); code != 0 {
		return fmt.Errorf("%w (%d)", ErrFailed, int(code))
	}
	return nil
}
