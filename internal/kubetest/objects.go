package kubetest

import (
	"context"
	"fmt"
	"time"
)

// Node is a node that is ready, with 8 CPUs.
type Node struct {
	Name   string
	GPUs   int // nvidia.com/gpu
	Labels map[string]string
}

// Pod is a pod with one container that waits for a node.
type Pod struct {
	Name        string
	Annotations map[string]string
	GPUs        int // nvidia.com/gpu; 0 asks for none
	MilliCPU    int
	// Selector is its nodeSelector.
	Selector map[string]string
}

// Namespace is that of all pods.
const Namespace = "default"

// AddNode adds a node.
func (s *Server) AddNode(n Node) {
	room := object{"cpu": "8", "memory": "32Gi", "pods": "110"}
	if n.GPUs > 0 {
		room["nvidia.com/gpu"] = fmt.Sprint(n.GPUs)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects["namespaces"] == nil {
		s.put("namespaces", Namespace, object{"kind": "Namespace", "apiVersion": "v1", "metadata": object{"name": Namespace}})
	}
	s.put("nodes", n.Name, object{"kind": "Node", "apiVersion": "v1",
		"metadata": object{"name": n.Name, "uid": "node-" + n.Name, "labels": n.Labels},
		"spec":     object{},
		"status":   object{"capacity": room, "allocatable": room, "conditions": []any{object{"type": "Ready", "status": "True"}}}})
}

// AddPod adds a pod, with a UID that no pod before it had.
func (s *Server) AddPod(p Pod) {
	requests := object{"cpu": fmt.Sprintf("%dm", max(p.MilliCPU, 1))}
	limits := object{}
	if p.GPUs > 0 {
		requests["nvidia.com/gpu"], limits["nvidia.com/gpu"] = fmt.Sprint(p.GPUs), fmt.Sprint(p.GPUs)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put("pods", Namespace+"/"+p.Name, object{"kind": "Pod", "apiVersion": "v1",
		"metadata": object{"name": p.Name, "namespace": Namespace, "uid": fmt.Sprint("pod-", len(s.log)), "annotations": p.Annotations, "creationTimestamp": time.Now().UTC().Format(time.RFC3339)},
		"spec": object{"schedulerName": "default-scheduler", "nodeSelector": p.Selector, "restartPolicy": "Always",
			"containers": []any{object{"name": "main", "image": "image:1", "resources": object{"requests": requests, "limits": limits}}}},
		"status": object{"phase": "Pending"}})
}

// DeletePod deletes a pod that is there, bound or not.
func (s *Server) DeletePod(pod string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove("pods", Namespace+"/"+pod)
}

// Bound waits until the pod is bound, and returns its node.
func (s *Server) Bound(ctx context.Context, pod string) (node string, err error) {
	o, err := s.await(ctx, Namespace+"/"+pod, func(o object) bool { return o["spec"].(object)["nodeName"] != nil })
	if err != nil {
		return "", err
	}
	return o["spec"].(object)["nodeName"].(string), nil
}

// Refused waits until the scheduler says why it finds no node for the pod, and returns what it says.
func (s *Server) Refused(ctx context.Context, pod string) (message string, err error) {
	_, err = s.await(ctx, Namespace+"/"+pod, func(o object) bool {
		conditions, _ := o["status"].(object)["conditions"].([]any)
		for _, c := range conditions {
			if c := c.(object); c["type"] == "PodScheduled" && c["status"] == "False" {
				message, _ = c["message"].(string)
			}
		}
		return message != ""
	})
	return message, err
}
