package task

import "strings"

// ImageName returns an image's name as a person writes it, the same for every engine: Podman calls
// the image trainer docker.io/library/trainer:latest, or localhost/trainer:latest if it was built
// here.
func ImageName(image string) string {
	for _, registry := range []string{"docker.io/library/", "docker.io/", "localhost/"} {
		if short, ok := strings.CutPrefix(image, registry); ok {
			image = short
			break
		}
	}
	return strings.TrimSuffix(image, ":latest")
}
