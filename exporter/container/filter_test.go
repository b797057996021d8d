package container_test

import (
	"testing"

	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/container/containertest"
)

func TestFiltered(t *testing.T) {
	fake := &containertest.Fake{}
	f := container.Filtered{Source: fake, Keep: func(c container.Container) bool { return c.Labels["ours"] == "yes" }}
	events, err := f.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []container.Container{
		{ID: "1", Name: "theirs"},
		{ID: "2", Name: "mine", Labels: map[string]string{"ours": "yes"}},
	} {
		fake.Put(c)
	}
	if e := <-events; e.Kind != container.Started || e.ID != "2" {
		t.Errorf("first event = %+v, want the start of 2", e)
	}
	list, err := f.List(t.Context())
	if err != nil || len(list) != 1 || list[0].ID != "2" {
		t.Errorf("List = %v, %v; want container 2 alone", list, err)
	}
}
