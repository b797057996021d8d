// Package kubetest is as much of a Kubernetes API server as kube-scheduler asks for, in memory and
// in JSON alone: it lists and watches, binds pods, notes their conditions and takes events. It checks
// nothing and lets everybody in.
//
// For tests only. It imports the standard library.
package kubetest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// kinds are the resources that kube-scheduler lists, and what it calls one of them.
var kinds = map[string]string{
	"configmaps": "ConfigMap", "csidrivers": "CSIDriver", "csinodes": "CSINode", "csistoragecapacities": "CSIStorageCapacity",
	"deviceclasses": "DeviceClass", "devicetaintrules": "DeviceTaintRule", "namespaces": "Namespace", "nodes": "Node",
	"persistentvolumeclaims": "PersistentVolumeClaim", "persistentvolumes": "PersistentVolume", "poddisruptionbudgets": "PodDisruptionBudget",
	"podgroups": "PodGroup", "pods": "Pod", "replicasets": "ReplicaSet", "replicationcontrollers": "ReplicationController",
	"resourceclaims": "ResourceClaim", "resourceslices": "ResourceSlice", "services": "Service", "statefulsets": "StatefulSet",
	"storageclasses": "StorageClass", "volumeattachments": "VolumeAttachment",
}

// object is a resource in Kubernetes' JSON.
type object = map[string]any

// change is what a watch tells.
type change struct {
	resource, kind string // of the change: ADDED, MODIFIED, DELETED
	version        int
	object         json.RawMessage
}

// Server is the API server. The zero value has nothing; it is safe for concurrent use.
type Server struct {
	mu      sync.Mutex
	objects map[string]map[string]object // by resource, then namespace/name
	log     []change
	changed chan struct{} // closed at the next change
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:] // api/v1
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:] // apis/GROUP/VERSION
	default:
		http.NotFound(w, r)
		return
	}
	namespace := ""
	if len(parts) > 2 && parts[0] == "namespaces" {
		namespace, parts = parts[1], parts[2:]
	}
	version := strings.TrimPrefix(r.URL.Path[:strings.LastIndex(r.URL.Path, "/"+parts[0])], "/apis/")
	version = strings.TrimPrefix(strings.Split(version, "/namespaces/")[0], "/api/")
	switch {
	case r.Method == http.MethodGet && len(parts) == 1 && r.URL.Query().Get("watch") != "":
		s.watch(w, r, parts[0], version)
	case r.Method == http.MethodGet && len(parts) == 1:
		s.list(w, parts[0], version)
	case r.Method == http.MethodPost && len(parts) == 3 && parts[0] == "pods" && parts[2] == "binding":
		s.bind(w, r, namespace+"/"+parts[1])
	case r.Method == http.MethodPatch && len(parts) == 3 && parts[0] == "pods" && parts[2] == "status":
		s.patchStatus(w, r, namespace+"/"+parts[1])
	case parts[0] == "events":
		var event object
		_ = json.NewDecoder(r.Body).Decode(&event)
		answer(w, http.StatusCreated, event)
	default:
		answer(w, http.StatusNotFound, object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404, "message": r.URL.Path})
	}
}

func answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}

// put adds or changes an object; the caller holds mu.
func (s *Server) put(resource, key string, o object) {
	if s.objects == nil {
		s.objects = map[string]map[string]object{}
	}
	if s.objects[resource] == nil {
		s.objects[resource] = map[string]object{}
	}
	kind := "ADDED"
	if _, ok := s.objects[resource][key]; ok {
		kind = "MODIFIED"
	}
	s.objects[resource][key] = o
	s.tell(resource, kind, o)
}

// remove removes an object that is there; the caller holds mu.
func (s *Server) remove(resource, key string) {
	o := copyOf(s.objects[resource][key])
	delete(s.objects[resource], key)
	s.tell(resource, "DELETED", o)
}

// tell gives the object its version, and tells who watches; the caller holds mu.
func (s *Server) tell(resource, kind string, o object) {
	version := len(s.log) + 1
	o["metadata"].(object)["resourceVersion"] = strconv.Itoa(version)
	raw, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	s.log = append(s.log, change{resource, kind, version, raw})
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// next returns what is closed at the next change; the caller holds mu.
func (s *Server) next() <-chan struct{} {
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.changed
}

func (s *Server) list(w http.ResponseWriter, resource, version string) {
	kind, ok := kinds[resource]
	if !ok {
		http.Error(w, "no such resource", http.StatusNotFound)
		return
	}
	s.mu.Lock()
	items := []object{}
	for _, o := range s.objects[resource] {
		items = append(items, o)
	}
	body, err := json.Marshal(object{"kind": kind + "List", "apiVersion": version, "metadata": object{"resourceVersion": strconv.Itoa(len(s.log))}, "items": items})
	s.mu.Unlock()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}

// watch tells the changes since resourceVersion. With sendInitialEvents it begins with all that
// there is, and a bookmark.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, resource, version string) {
	kind, ok := kinds[resource]
	if !ok {
		http.Error(w, "no such resource", http.StatusNotFound)
		return
	}
	since, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	initial := r.URL.Query().Get("sendInitialEvents") == "true"
	if initial {
		since = 0
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	tell := json.NewEncoder(w)
	for {
		s.mu.Lock()
		now, more := s.log, s.next()
		s.mu.Unlock()
		for _, c := range now[min(since, len(now)):] {
			if c.resource == resource {
				_ = tell.Encode(object{"type": c.kind, "object": c.object})
			}
		}
		since = len(now)
		if initial {
			initial = false
			_ = tell.Encode(object{"type": "BOOKMARK", "object": object{"kind": kind, "apiVersion": version, "metadata": object{
				"resourceVersion": strconv.Itoa(since), "annotations": object{"k8s.io/initial-events-end": "true"}}}})
		}
		_ = http.NewResponseController(w).Flush()
		select {
		case <-more:
		case <-r.Context().Done():
			return
		}
	}
}

// copyOf is an object that may be changed, and read by others as it was.
func copyOf(o object) object {
	raw, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	var out object
	if err := json.Unmarshal(raw, &out); err != nil {
		panic(err)
	}
	return out
}

func (s *Server) bind(w http.ResponseWriter, r *http.Request, pod string) {
	var binding struct{ Target struct{ Name string } }
	bound := s.changePod(w, r, pod, &binding, func(o object) { o["spec"].(object)["nodeName"] = binding.Target.Name })
	if bound != nil {
		answer(w, http.StatusCreated, object{"kind": "Status", "apiVersion": "v1", "status": "Success"})
	}
}

// patchStatus sets the conditions that are in a patch.
func (s *Server) patchStatus(w http.ResponseWriter, r *http.Request, pod string) {
	var patch struct{ Status struct{ Conditions []object } }
	patched := s.changePod(w, r, pod, &patch, func(o object) {
		status := o["status"].(object)
		conditions, _ := status["conditions"].([]any)
		for _, c := range patch.Status.Conditions {
			conditions = slices.DeleteFunc(conditions, func(old any) bool { return old.(object)["type"] == c["type"] })
			conditions = append(conditions, c)
		}
		status["conditions"] = conditions
	})
	if patched != nil {
		answer(w, http.StatusOK, patched)
	}
}

// changePod reads the body of a request and changes a copy of the pod by it, which becomes the pod.
// It returns that, or nil after it has answered why not.
func (s *Server) changePod(w http.ResponseWriter, r *http.Request, pod string, body any, change func(object)) object {
	if err := json.NewDecoder(r.Body).Decode(body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects["pods"][pod]
	if o == nil {
		http.NotFound(w, r)
		return nil
	}
	o = copyOf(o)
	change(o)
	s.put("pods", pod, o)
	return o
}

// await returns the pod once it is as wanted.
func (s *Server) await(ctx context.Context, pod string, as func(object) bool) (object, error) {
	for {
		s.mu.Lock()
		o, more := s.objects["pods"][pod], s.next()
		s.mu.Unlock()
		if o != nil && as(o) {
			return o, nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return o, fmt.Errorf("pod %s: %w: %v", pod, ctx.Err(), o)
		}
	}
}
