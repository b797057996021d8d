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

func TestImageName(t *testing.T) {
	for image, want := range map[string]string{
		"trainer":                             "trainer",
		"trainer:1":                           "trainer:1",
		"trainer:latest":                      "trainer",
		"docker.io/library/trainer:latest":    "trainer",
		"localhost/trainer:1":                 "trainer:1",
		"docker.io/us/trainer:latest":         "us/trainer",
		"registry.example:5000/trainer:1":     "registry.example:5000/trainer:1",
		"localhost:5000/trainer:1":            "localhost:5000/trainer:1",
		"docker.io/library/trainer@sha256:12": "trainer@sha256:12",
		"":                                    "",
	} {
		if got := container.ImageName(image); got != want {
			t.Errorf("ImageName(%q) = %q, want %q", image, got, want)
		}
	}
}
