package containerd_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	containers "github.com/containerd/containerd/api/services/containers/v1"
	namespaces "github.com/containerd/containerd/api/services/namespaces/v1"
	tasks "github.com/containerd/containerd/api/services/tasks/v1"
	types "github.com/containerd/containerd/api/types/task"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/enforce/containerd"
	"github.com/laxity/laxity/actuator/enforce/enforcetest"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/internal/ctrd"
	"github.com/laxity/laxity/internal/freezer"
)

// taskService is containerd's, with the task of container c. A resumed task runs.
type taskService struct {
	tasks.UnimplementedTasksServer
	pid     uint32
	status  atomic.Int32
	resumed atomic.Int32
}

func (s *taskService) Get(context.Context, *tasks.GetRequest) (*tasks.GetResponse, error) {
	return &tasks.GetResponse{Process: &types.Process{ID: "c", Pid: s.pid, Status: types.Status(s.status.Load())}}, nil
}

func (s *taskService) Resume(context.Context, *tasks.ResumeTaskRequest) (*emptypb.Empty, error) {
	s.resumed.Add(1)
	s.status.Store(int32(types.Status_RUNNING))
	return &emptypb.Empty{}, nil
}

type containerService struct {
	containers.UnimplementedContainersServer
}

func (containerService) Get(context.Context, *containers.GetContainerRequest) (*containers.GetContainerResponse, error) {
	return &containers.GetContainerResponse{Container: &containers.Container{ID: "c"}}, nil
}

type namespaceService struct {
	namespaces.UnimplementedNamespacesServer
}

func (namespaceService) List(context.Context, *namespaces.ListNamespacesRequest) (*namespaces.ListNamespacesResponse, error) {
	return &namespaces.ListNamespacesResponse{Namespaces: []*namespaces.Namespace{{Name: "default"}}}, nil
}

// onTask is an enforcer on a containerd that says this of the task of container c, which is on
// record. The kernel's freezer is a fake engine's.
func onTask(t *testing.T, service *taskService, state freezer.State) (*containerd.Enforcer, *enforcetest.Engine, *journal.Journal) {
	t.Helper()
	address := filepath.Join(t.TempDir(), "containerd.sock")
	listener, err := net.Listen("unix", address)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	tasks.RegisterTasksServer(server, service)
	containers.RegisterContainersServer(server, containerService{})
	namespaces.RegisterNamespacesServer(server, namespaceService{})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	client, err := ctrd.New(ctrd.Options{Address: address})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	j, err := journal.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	kernel := enforcetest.NewEngine()
	kernel.Run("c")
	kernel.SetFreezer("c", state)
	e, err := containerd.New(containerd.Options{Client: client, Journal: j, Freezer: kernel, CallTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Put(enforcetest.HoldOf("c")); err != nil {
		t.Fatal(err)
	}
	return e, kernel, j
}

// What containerd says of a task on record: that of one whose shim does not answer is not taken for
// the end of the container, and that of one whose pause is on its way not for a container that runs.
func TestTaskOnRecord(t *testing.T) {
	unpause := func(e *containerd.Enforcer) error { return e.Unpause(context.Background(), "c") }
	renew := func(e *containerd.Enforcer) error { return e.Pause(context.Background(), enforcetest.HoldOf("c")) }
	inspect := func(e *containerd.Enforcer) error { _, err := e.Status(context.Background(), "c"); return err }
	for name, tt := range map[string]struct {
		pid     uint32
		status  types.Status
		state   freezer.State
		do      func(e *containerd.Enforcer) error
		want    error
		after   freezer.State
		resumed int32
		kept    bool // on record
	}{
		"shim silent, unpause":    {0, types.Status_UNKNOWN, freezer.Frozen, unpause, enforce.ErrUnavailable, freezer.Frozen, 0, true},
		"shim silent, renewal":    {0, types.Status_UNKNOWN, freezer.Frozen, renew, enforce.ErrUnavailable, freezer.Frozen, 0, true},
		"shim silent, inspection": {0, types.Status_UNKNOWN, freezer.Frozen, inspect, enforce.ErrUnavailable, freezer.Frozen, 0, true},
		"ended, runs, unpause":    {0, types.Status_STOPPED, freezer.Thawed, unpause, nil, freezer.Thawed, 0, false},
		"ended, frozen, unpause":  {7, types.Status_STOPPED, freezer.Frozen, unpause, nil, freezer.Thawed, 0, false},
		"ended, frozen, renewal":  {7, types.Status_STOPPED, freezer.Frozen, renew, enforce.ErrGone, freezer.Thawed, 0, false},
		"pausing, unpause":        {7, types.Status_PAUSING, freezer.Thawed, unpause, nil, freezer.Thawed, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			service := &taskService{pid: tt.pid}
			service.status.Store(int32(tt.status))
			e, kernel, j := onTask(t, service, tt.state)
			if err := tt.do(e); !errors.Is(err, tt.want) {
				t.Errorf("error %v, want %v", err, tt.want)
			}
			if state, err := kernel.State("c", 0); state != tt.after || err != nil {
				t.Errorf("the freezer says %v (%v), want %v", state, err, tt.after)
			}
			if _, kept, err := j.Get("c"); kept != tt.kept || err != nil {
				t.Errorf("on record %v (%v), want %v", kept, err, tt.kept)
			}
			if n := service.resumed.Load(); n != tt.resumed {
				t.Errorf("resumed %d times, want %d", n, tt.resumed)
			}
		})
	}
}
