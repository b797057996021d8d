package crio

import (
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/laxity/laxity/internal/cri/critest"
)

// What was said of a container is forgotten with it: many short ones that are not described must not
// make the exporter grow. Of one that is there it is said once.
func TestWhatWasSaidIsForgotten(t *testing.T) {
	s := critest.New(t)
	e, err := New(Options{Address: s.Address, Proc: s.Proc})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	stays := s.Run(critest.Pod{Namespace: "ns", Name: "pod", Container: "c"})
	s.FailWith(func(method, _ string) error {
		if method == "ContainerStatus" {
			return status.Error(codes.Internal, "its metadata cannot be read")
		}
		return nil
	})
	for n := range 5000 {
		id := fmt.Sprint("typed-", n)
		if e.watchable(id); !e.said[about{"id", id}] {
			t.Fatal("not said: this tests nothing")
		}
	}
	e.once(about{what: "events"}, "of the engine")
	for range 2 {
		if _, err := e.look(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !e.said[about{"status", stays}] || !e.said[about{what: "events"}] || len(e.said) != 2 {
			t.Errorf("%d are remembered: %v", len(e.said), e.said)
		}
	}
}
