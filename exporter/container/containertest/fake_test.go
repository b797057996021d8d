package containertest_test

import (
	"errors"
	"testing"

	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/container/containertest"
)

type fakeHost struct{ containertest.Fake }

func (h *fakeHost) Source() container.Source { return &h.Fake }

func (h *fakeHost) Run(_ *testing.T, name string, labels map[string]string) string {
	return h.Put(container.Container{Name: name, Labels: labels, PID: 1}).ID
}
func (h *fakeHost) Pause(_ *testing.T, id string)        { h.SetPaused(id, true) }
func (h *fakeHost) Unpause(_ *testing.T, id string)      { h.SetPaused(id, false) }
func (h *fakeHost) Rename(_ *testing.T, id, name string) { h.Fake.Rename(id, name) }
func (h *fakeHost) Stop(_ *testing.T, id string)         { h.Fake.Stop(id) }
func (h *fakeHost) Remove(_ *testing.T, id string)       { h.Fake.Remove(id) }

func TestFakeConforms(t *testing.T) {
	containertest.Conformance(t, "", &fakeHost{})
}

func TestFakeFails(t *testing.T) {
	var f containertest.Fake
	events, err := f.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f.Fail(errors.New("no daemon"))
	if _, open := <-events; open {
		t.Error("the stream goes on")
	}
	if _, err := f.List(t.Context()); !errors.Is(err, container.ErrUnavailable) {
		t.Errorf("List: %v", err)
	}
	if _, err := f.Watch(t.Context()); !errors.Is(err, container.ErrUnavailable) {
		t.Errorf("Watch: %v", err)
	}
	f.Fail(nil)
	if _, err := f.List(t.Context()); err != nil {
		t.Error(err)
	}
}
