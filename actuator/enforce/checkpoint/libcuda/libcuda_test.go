//go:build linux && cgo

package libcuda_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/laxity/laxity/actuator/enforce/checkpoint"
	"github.com/laxity/laxity/actuator/enforce/checkpoint/libcuda"
)

func TestOpenSaysWhatIsMissing(t *testing.T) {
	for name, c := range map[string]struct{ library, says string }{
		"no driver":          {"/nonexistent/libcuda.so.1", "is NVIDIA's driver installed?"},
		"without the API":    {"libm.so.6", "cuCheckpointProcessLock"},
		"not a library even": {"/proc/self/cmdline", "is NVIDIA's driver installed?"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := libcuda.Open(c.library)
			if !errors.Is(err, checkpoint.ErrUnavailable) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v", err)
			}
		})
	}
}
