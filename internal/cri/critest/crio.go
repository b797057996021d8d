package critest

import (
	"context"
	"embed"
	"encoding/json"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The answers as containerd's CRI service gave them. What is CRI-O's own shape is marked with
// "CRI-O:" below, with the file of its source (version 1.37) that says so.
//
//go:embed testdata/*.json
var recorded embed.FS

// replay reads a recorded answer.
func replay[T proto.Message](name string, into T) T {
	text, err := recorded.ReadFile("testdata/" + name + ".json")
	if err == nil {
		err = protojson.Unmarshal(text, into)
	}
	if err != nil {
		panic(err) // of a test
	}
	return into
}

// later adds a field that no version has yet: a server may be newer than its client.
func later(m proto.Message) {
	field := protowire.AppendTag(nil, 9999, protowire.BytesType)
	m.ProtoReflect().SetUnknown(protowire.AppendString(field, "of a later version"))
}

// may answers for FailWith.
func (s *Server) may(method, id string) error {
	if s.fail == nil {
		return nil
	}
	return s.fail(method, id)
}

// Version implements the CRI.
func (s *Server) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := replay("version", &cri.VersionResponse{})
	v.RuntimeName, v.RuntimeVersion = "cri-o", "1.37.0" // CRI-O: server/version.go
	later(v)
	return v, s.may("Version", "")
}

// Status implements the CRI.
func (s *Server) Status(context.Context, *cri.StatusRequest) (*cri.StatusResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return replay("status", &cri.StatusResponse{}), s.may("Status", "")
}

// ListContainers implements the CRI.
func (s *Server) ListContainers(context.Context, *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &cri.ListContainersResponse{}
	for _, e := range s.all {
		c := replay("containers", &cri.ListContainersResponse{}).GetContainers()[0]
		c.Id, c.PodSandboxId, c.State, c.CreatedAt = e.id, e.sandbox, e.state, e.created.UnixNano()
		c.Metadata.Name, c.Labels = e.Container, e.labels(e.Container)
		c.ImageId = c.GetImageRef() // CRI-O: internal/oci/container.go
		later(c)
		out.Containers = append(out.Containers, c)
	}
	return out, s.may("ListContainers", "")
}

// ListPodSandbox implements the CRI.
func (s *Server) ListPodSandbox(_ context.Context, r *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &cri.ListPodSandboxResponse{}
	for _, e := range s.all {
		if id := r.GetFilter().GetId(); id != "" && id != e.sandbox {
			continue // CRI-O: a filter that nothing matches is no error (server/sandbox_list.go)
		}
		p := replay("pods", &cri.ListPodSandboxResponse{}).GetItems()[0]
		p.Id, p.CreatedAt, p.Labels, p.Annotations = e.sandbox, e.created.UnixNano(), e.labels(""), e.Annotations
		p.Metadata.Name, p.Metadata.Namespace, p.Metadata.Uid = e.Name, e.Namespace, e.sandbox[:12]
		later(p)
		out.Items = append(out.Items, p)
	}
	return out, s.may("ListPodSandbox", r.GetFilter().GetId())
}

// ContainerStatus implements the CRI.
func (s *Server) ContainerStatus(_ context.Context, r *cri.ContainerStatusRequest) (*cri.ContainerStatusResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.may("ContainerStatus", r.GetContainerId()); err != nil {
		return nil, err
	}
	e := s.find(r.GetContainerId())
	if e == nil || e.vanished {
		// CRI-O: server/container_status.go
		return nil, status.Errorf(codes.NotFound, "could not find container %q: container with ID starting with %s not found: ID does not exist", r.GetContainerId(), r.GetContainerId())
	}
	answer := replay("container", &cri.ContainerStatusResponse{})
	answer.Status = e.status(answer.GetStatus())
	if !r.GetVerbose() {
		answer.Info = nil
		return answer, nil
	}
	answer.Info = map[string]string{"info": e.info(answer.GetInfo()["info"])}
	later(answer)
	return answer, nil
}

func (e *entry) status(c *cri.ContainerStatus) *cri.ContainerStatus {
	c.Id, c.State, c.CreatedAt, c.StartedAt = e.id, e.state, e.created.UnixNano(), e.created.UnixNano()
	c.Metadata.Name, c.Labels = e.Container, e.labels(e.Container)
	c.ImageId = c.GetImageRef() // CRI-O: server/container_status.go
	if e.state == cri.ContainerState_CONTAINER_EXITED {
		c.FinishedAt, c.Reason = e.finished.UnixNano(), "Completed"
	}
	later(c)
	return c
}

// info makes of what containerd adds what CRI-O adds. CRI-O: server/container_status.go has these
// four fields, where containerd has ten.
func (e *entry) info(of string) string {
	var was struct {
		Spec map[string]any `json:"runtimeSpec"`
	}
	if err := json.Unmarshal([]byte(of), &was); err != nil {
		panic(err) // of a test
	}
	process := was.Spec["process"].(map[string]any)
	env := process["env"].([]any)
	env = slices.DeleteFunc(env, func(v any) bool { return len(e.Env) > 0 && v == "NVIDIA_VISIBLE_DEVICES=GPU-1" })
	for _, v := range e.Env {
		env = append(env, v)
	}
	process["env"] = env
	// CRI-O: internal/config/cgmgr/systemd_linux.go
	was.Spec["linux"].(map[string]any)["cgroupsPath"] = "kubepods-besteffort-pod" + e.sandbox[:12] + ".slice:crio:" + e.id
	pid := e.pid
	if e.state == cri.ContainerState_CONTAINER_EXITED {
		pid = 0
	}
	text, err := json.Marshal(map[string]any{"sandboxID": e.sandbox, "pid": pid, "runtimeSpec": was.Spec, "privileged": false})
	if err != nil {
		panic(err) // of a test
	}
	return string(text)
}

// GetContainerEvents implements the CRI. CRI-O: without enable_pod_events the stream ends at once,
// and without an error (server/container_events.go).
func (s *Server) GetContainerEvents(_ *cri.GetEventsRequest, stream grpc.ServerStreamingServer[cri.ContainerEventResponse]) error {
	s.mu.Lock()
	if s.silent || s.server == nil {
		s.mu.Unlock()
		return nil
	}
	cut, events := make(chan struct{}), make(chan *cri.ContainerEventResponse, 1000)
	s.cut[cut] = events
	close(s.opened)
	s.opened = make(chan struct{})
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.cut, cut)
	}()
	for {
		select {
		case e := <-events:
			if err := stream.Send(e); err != nil {
				return err
			}
		case <-cut:
			return errCut
		case <-stream.Context().Done():
			return nil
		}
	}
}

// tell sends an event. CRI-O: it has the status of the pod and of its containers (server/server.go).
func (s *Server) tell(e *entry, kind cri.ContainerEventType) {
	event := &cri.ContainerEventResponse{ContainerId: e.id, ContainerEventType: kind, CreatedAt: time.Now().UnixNano(),
		PodSandboxStatus:   &cri.PodSandboxStatus{Id: e.sandbox},
		ContainersStatuses: []*cri.ContainerStatus{e.status(replay("container", &cri.ContainerStatusResponse{}).GetStatus())}}
	later(event)
	for _, stream := range s.cut {
		select {
		case stream <- event:
		default: // CRI-O: dropped where 1000 wait (server/server.go)
		}
	}
}
