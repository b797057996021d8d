package task

import "strings"

// PodContainer is the name of a container in a pod of Kubernetes. It is unique on a node, as names
// of containers are: a container of the same name may be in every pod.
func PodContainer(namespace, pod, container string) string {
	return namespace + "/" + pod + "/" + container
}

// PodOf returns the namespace and name of the pod that a container's name, of PodContainer, says;
// empty for a container in no pod. No other engine's names have two slashes.
func PodOf(name string) (namespace, pod string) {
	namespace, rest, _ := strings.Cut(name, "/")
	pod, container, ok := strings.Cut(rest, "/")
	if !ok || namespace == "" || pod == "" || container == "" {
		return "", ""
	}
	return namespace, pod
}
