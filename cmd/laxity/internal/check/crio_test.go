package check

import (
	"testing"

	"github.com/containerd/errdefs"

	"github.com/laxity/laxity/internal/cri/critest"
	"github.com/laxity/laxity/internal/daemon/containerd"
	"github.com/laxity/laxity/internal/daemon/containerd/containerdtest"
	engines "github.com/laxity/laxity/internal/engine"
)

func TestGatherCRIO(t *testing.T) {
	s := critest.New(t)
	choice := engines.Choice{Kind: engines.CRIO, CRIOAddress: s.Address}
	if f := gatherCRIO(t.Context(), choice); f.err != nil || f.name != "cri-o" || f.version != "1.37.0" || f.events != nil || len(f.lacks) != 1 || f.running != 0 {
		t.Errorf("%+v", f)
	}
	s.Silence()
	if f := gatherCRIO(t.Context(), choice); !errdefs.IsNotImplemented(f.events) {
		t.Errorf("without events: %+v", f)
	}
	id := s.Run(critest.Pod{Namespace: "ns", Name: "pod", Container: "c"})
	if f := gatherCRIO(t.Context(), choice); f.running != 1 || f.unfrozen != 1 || f.freezer == nil {
		t.Errorf("with a container that this machine does not have: %+v", f)
	}
	s.Vanish(id)
	if f := gatherCRIO(t.Context(), choice); f.running != 0 || f.err != nil {
		t.Errorf("with one that vanished: %+v", f)
	}
	s.Down()
	if f := gatherCRIO(t.Context(), choice); f.err == nil {
		t.Errorf("without it: %+v", f)
	}
}

// What is examined on a real engine with this interface, with a real container.
func TestGatherCRI(t *testing.T) {
	e := containerdtest.New(t)
	if _, _, err := e.RunPod(t.Context(), containerd.Pod{Namespace: "ns", Name: "pod"}, containerd.Spec{Name: "main", Image: containerdtest.Image}); err != nil {
		t.Fatal(err)
	}
	f := gatherCRIO(t.Context(), engines.Choice{Kind: engines.CRIO, CRIOAddress: e.Address})
	if f.err != nil || f.name != "containerd" || f.running != 1 || f.strange+f.nameless+f.unfrozen != 0 {
		t.Errorf("%+v", f)
	}
}
