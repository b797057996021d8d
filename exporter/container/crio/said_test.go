package crio

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/internal/cri/critest"
	"github.com/laxity/laxity/internal/freezer"
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

// A container whose freezer cannot be read counts as running, which may be wrong: it is said, once of
// each. One that has ended meanwhile is nothing to say.
func TestUnreadableFreezerIsSaidOnce(t *testing.T) {
	var log strings.Builder
	e := &Engine{log: slog.New(slog.NewTextHandler(&log, nil)), said: map[about]bool{}}
	k := func(id string) *known {
		return &known{Container: container.Container{ID: id, Name: id}, group: &freezer.Group{Dir: filepath.Join(t.TempDir(), id), V2: true}}
	}
	one, two, ended := k("one"), k("two"), k("ended")
	for _, unreadable := range []*known{one, two} { // a folder is no file
		if err := os.MkdirAll(filepath.Join(unreadable.group.Dir, "cgroup.events"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		for _, k := range []*known{one, two, ended} {
			if e.paused(k) {
				t.Errorf("%s is paused", k.ID)
			}
		}
	}
	if text := log.String(); strings.Count(text, "cannot be read") != 2 || strings.Count(text, "id=one") != 1 || strings.Count(text, "id=two") != 1 {
		t.Errorf("logged: %s", text)
	}
}
