// Package critest is a CRI-O for tests: a server that replays recorded answers, for containers that
// are entries of a made-up proc file system with a freezer. Nothing of CRI-O runs.
//
// The answers in testdata were recorded from containerd's CRI service (TestRecorded compares them).
// crio.go says what of them is changed to CRI-O's own shape, by its public source.
//
// For tests only. It imports golang.org/x/sys, google.golang.org/grpc, google.golang.org/protobuf,
// k8s.io/cri-api and the standard library.
package critest

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Pod is a pod with one container.
type Pod struct {
	Namespace, Name, Container string
	Labels, Annotations        map[string]string
	// Env is the environment of the container's first process, beside what was recorded.
	Env []string
}

// Server answers as CRI-O does. Its methods may be called while it is down.
type Server struct {
	cri.UnimplementedRuntimeServiceServer

	// Address is its socket, Proc its proc file system.
	Address, Proc string

	dir    string
	mu     sync.Mutex
	silent bool
	above  string // what the paths of control groups begin with
	fail   func(method, id string) error
	all    []*entry // in order of creation
	next   int      // PID
	server *grpc.Server
	ended  chan struct{}
	cut    map[chan struct{}]chan *cri.ContainerEventResponse // open streams of events, by what cuts them
	opened chan struct{}                                      // closed by the next stream that opens
}

// New starts a server that ends with the test. It tells of events, as with enable_pod_events.
func New(t testing.TB) *Server {
	t.Helper()
	dir, err := os.MkdirTemp("", "laxity-cri-") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{dir: dir, Address: filepath.Join(dir, "crio.sock"), Proc: filepath.Join(dir, "proc"), next: 1000,
		cut: map[chan struct{}]chan *cri.ContainerEventResponse{}, opened: make(chan struct{})}
	s.write("proc/self/mountinfo", "1 1 0:1 / "+filepath.Join(dir, "freezer")+" rw - cgroup cgroup rw,freezer\n")
	s.write("proc/sys/kernel/random/boot_id", "0b0075\n")
	t.Cleanup(func() {
		s.Down()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	s.Up()
	return s
}

// Up starts it, again after Down. What runs has gone on meanwhile.
func (s *Server) Up() {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", s.Address)
	if err != nil {
		panic(err) // of a test
	}
	server, ended := grpc.NewServer(), make(chan struct{})
	cri.RegisterRuntimeServiceServer(server, s)
	s.server, s.ended = server, ended
	go func() {
		defer close(ended)
		_ = server.Serve(l) // until it is stopped
	}()
}

// Down kills it, and cuts all connections.
func (s *Server) Down() {
	s.mu.Lock()
	server, ended := s.server, s.ended
	s.server = nil
	s.cutAll()
	s.mu.Unlock()
	if server != nil {
		server.Stop()
		<-ended
	}
}

// InNamespace makes the proc file system that of a reader in a cgroup namespace of its own, where the
// host's groups are mounted. Call it before Run.
func (s *Server) InNamespace() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.above = "/../../.."
	s.write("proc/self/mountinfo", "1 1 0:1 "+s.above+" "+filepath.Join(s.dir, "freezer")+" rw - cgroup cgroup rw,freezer\n")
}

// Silence makes it tell of no events, as CRI-O does without enable_pod_events: streams end at once.
func (s *Server) Silence() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent = true
	s.cutAll()
}

// FailWith makes calls fail: f returns nil for those that should work. id is the container's or the
// pod's, empty for a list. Nil ends it.
func (s *Server) FailWith(f func(method, id string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = f
}

// Break cuts the streams of events. The server goes on.
func (s *Server) Break() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cutAll()
}

// Opened is closed once a stream of events is open that was not when it was called.
func (s *Server) Opened() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened
}

func (s *Server) cutAll() {
	for c := range s.cut {
		close(c)
	}
	clear(s.cut)
}

var errCut = errors.New("the stream was cut")

func (s *Server) write(path, text string) {
	path = filepath.Join(s.dir, path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		panic(err) // of a test
	}
}
