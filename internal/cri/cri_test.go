package cri_test

import (
	"context"
	"errors"
	"testing"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/laxity/laxity/internal/cri"
	"github.com/laxity/laxity/internal/cri/critest"
)

func dial(t *testing.T) (*critest.Server, *cri.Client) {
	t.Helper()
	s := critest.New(t)
	c, err := cri.New("unix://" + s.Address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return s, c
}

// The pod is asked for where the caller has not got it, and the kubelet's labels stand in for one
// that is gone. The beginning of an id names nobody.
func TestDescribe(t *testing.T) {
	s, c := dial(t)
	id := s.Run(critest.Pod{Namespace: "ns", Name: "pod", Container: "main", Annotations: map[string]string{"laxity.dev/share": "30%"}})
	got, err := c.Describe(t.Context(), id, nil)
	if err != nil || got.State != cri.Running || got.PID == 0 || got.Started.IsZero() || !got.Finished.IsZero() || got.Pod != "pod" || got.PodNamespace != "ns" || got.Name != "main" ||
		got.Labels["laxity.share"] != "30%" || len(got.Command) != 1 || len(got.Env) == 0 {
		t.Errorf("%+v, %v", got, err)
	}
	items, err := c.List(t.Context())
	if err != nil || len(items) != 1 {
		t.Fatalf("%+v, %v", items, err)
	}
	if got := (cri.Pods{}).Listed(items[0]); got.Pod != "pod" || got.PodNamespace != "ns" || got.Name != "main" || got.PID != 0 || got.Labels["laxity.share"] != "" {
		t.Errorf("without its pod: %+v", got)
	}
	if _, err := c.Describe(t.Context(), id[:12], nil); !errdefs.IsNotFound(err) {
		t.Errorf("the beginning of an id: %v", err)
	}
	s.FailWith(func(method, _ string) error {
		if method == "ListPodSandbox" {
			return status.Error(codes.Internal, "no pods today")
		}
		return nil
	})
	if _, err := c.Describe(t.Context(), id, nil); err == nil {
		t.Error("its pod cannot be had, and its labels count as none")
	}
	s.FailWith(nil)
	s.Stop(id)
	if state, finished, err := c.StateOf(t.Context(), id); err != nil || state != cri.Exited || finished.IsZero() {
		t.Errorf("%v, %v, %v", state, finished, err)
	}
	s.Down()
	if _, err := c.List(t.Context()); !cri.Unavailable(err) {
		t.Errorf("without the engine: %v", err)
	}
}

// An engine without events is told from one whose stream breaks.
func TestFollow(t *testing.T) {
	s, c := dial(t)
	told, ended := make(chan struct{}, 1), make(chan error, 1)
	opened := s.Opened()
	go func() { ended <- c.Follow(t.Context(), func() { told <- struct{}{} }) }()
	<-opened
	s.Run(critest.Pod{Namespace: "ns", Name: "pod", Container: "main"})
	<-told
	s.Break()
	if err := <-ended; err == nil || errdefs.IsNotImplemented(err) {
		t.Errorf("broken: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	opened = s.Opened()
	go func() { ended <- c.Follow(ctx, func() {}) }()
	<-opened
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
	s.Silence()
	if err := c.Follow(t.Context(), func() {}); !errdefs.IsNotImplemented(err) {
		t.Errorf("without events: %v", err)
	}
}
