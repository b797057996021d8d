package cudaprobe

import (
	"errors"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// A kernel without types is told apart from one that refuses, with what would help.
func TestKernelWithoutTypes(t *testing.T) {
	err := checkTypes(func() (*btf.Spec, error) { return nil, ebpf.ErrNotSupported })
	if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "CONFIG_DEBUG_INFO_BTF") {
		t.Errorf("got %v", err)
	}
}
