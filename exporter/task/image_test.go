package task_test

import (
	"testing"

	"github.com/laxity/laxity/exporter/task"
)

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
		if got := task.ImageName(image); got != want {
			t.Errorf("ImageName(%q) = %q, want %q", image, got, want)
		}
	}
}
