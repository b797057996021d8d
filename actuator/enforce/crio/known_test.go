package crio

import (
	"fmt"
	"testing"

	"github.com/laxity/laxity/internal/cache"
	"github.com/laxity/laxity/internal/cri"
	"github.com/laxity/laxity/internal/cri/critest"
	"github.com/laxity/laxity/internal/freezer"
)

// Many short containers each end without being asked about again: what is remembered stays bounded,
// and one that runs can be paused and released though it was forgotten.
func TestShortContainersAreForgotten(t *testing.T) {
	s := critest.New(t)
	client, err := cri.New(s.Address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	c := &calls{client: client, kernel: freezer.New(s.Proc), known: &cache.Cache[known]{}}
	lives := s.Run(critest.Pod{Namespace: "ns", Name: "pod", Container: "c", Annotations: map[string]string{"laxity.dev/deadline": "9s"}})
	before, err := c.Inspect(t.Context(), lives)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 5000 {
		id := fmt.Sprint(n)
		c.known.Put(id, known{pid: 1})
		if last, _ := c.known.Get(id); last.pid != 1 || c.known.Len() > cache.Most {
			t.Fatalf("after %d: %d are remembered, the last one is %+v", n+1, c.known.Len(), last)
		}
	}
	if _, ok := c.known.Get(lives); ok {
		t.Fatal("it was not forgotten: this tests nothing")
	}
	if err := c.Pause(t.Context(), lives); err != nil || !s.Frozen(lives) {
		t.Errorf("pause of one that was forgotten: %v", err)
	}
	if err := c.Unpause(t.Context(), lives); err != nil || s.Frozen(lives) {
		t.Errorf("release of one that was forgotten: %v", err)
	}
	if after, err := c.Inspect(t.Context(), lives); err != nil || after.PID != before.PID || after.Labels["laxity.deadline"] != "9s" {
		t.Errorf("asked about again: %+v, %v", after, err)
	}
}
