// Package pod says what a container has of its pod of Kubernetes, the same for every engine.
//
// It is a leaf. It imports the standard library.
package pod

import (
	"maps"
	"strings"
)

// Annotation begins the annotations of a pod that Laxity reads. laxity.dev/deadline on a pod is
// the label laxity.deadline on each of its containers.
const Annotation = "laxity.dev/"

// Labels that the kubelet writes on the containers of a pod.
const (
	NameLabel      = "io.kubernetes.pod.name"
	SpaceLabel     = "io.kubernetes.pod.namespace"
	ContainerLabel = "io.kubernetes.container.name"
)

// Labels returns a container's labels with those of its pod over them, and over these the pod's
// annotations of Laxity, as labels.
func Labels(container, pod, annotations map[string]string) map[string]string {
	labels := make(map[string]string, len(container)+len(pod))
	maps.Copy(labels, container)
	maps.Copy(labels, pod)
	for key, value := range annotations {
		if name, ok := strings.CutPrefix(key, Annotation); ok {
			labels["laxity."+name] = value
		}
	}
	return labels
}
