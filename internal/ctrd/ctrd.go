// Package ctrd talks to containerd: which containers there are in which namespaces, their tasks and
// events, and, where Kubernetes' CRI made them, their pods. It also pauses and resumes tasks. The
// exporter's adapter and the actuator's share it, so that both read the same labels.
//
// It stands upon containerd's client library and the API of the CRI. Of ours it imports internal/cri,
// internal/oci and internal/pod.
package ctrd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	tasks "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/defaults"
	"github.com/containerd/containerd/v2/pkg/dialer"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/laxity/laxity/internal/cri"
)

// CRINamespace is the namespace of the containers that Kubernetes makes.
const CRINamespace = "k8s.io"

// reconnect bounds the time between two tries to connect while containerd is away.
const reconnect = time.Second

// Options say which containerd to use.
type Options struct {
	// Address is the path of its socket, with or without unix:// before it.
	Address string
	// Namespaces are those to use; empty: all but those of other engines (moby: Docker's).
	Namespaces []string
}

// Client is a connection to one containerd. It is safe for concurrent use.
type Client struct {
	conn   *grpc.ClientConn
	client *client.Client
	pods   api.RuntimeServiceClient
	only   []string
}

// New prepares to talk to containerd; it does not connect yet.
func New(o Options) (*Client, error) {
	path := strings.TrimPrefix(o.Address, "unix://")
	if path == "" {
		return nil, errors.New("containerd: no address of its socket is given (--containerd.address)")
	}
	delays := backoff.DefaultConfig
	delays.MaxDelay, delays.BaseDelay = reconnect, reconnect/10
	conn, err := grpc.NewClient("passthrough:///"+dialer.DialAddress(path),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: delays, MinConnectTimeout: 10 * time.Second}),
		grpc.WithContextDialer(dialer.ContextDialer),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(defaults.DefaultMaxRecvMsgSize), grpc.MaxCallSendMsgSize(defaults.DefaultMaxSendMsgSize)))
	if err != nil {
		return nil, fmt.Errorf("containerd at %s: %w", path, err)
	}
	c, err := client.NewWithConn(conn)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("containerd at %s: %w", path, err), conn.Close())
	}
	return &Client{conn: conn, client: c, pods: api.NewRuntimeServiceClient(conn), only: o.Namespaces}, nil
}

// Close closes the connection.
func (c *Client) Close() error { return c.conn.Close() }

// ID returns what tells this containerd from others; it lives as long as its root folder.
func (c *Client) ID(ctx context.Context) (string, error) {
	s, err := c.client.Server(ctx)
	if err == nil && s.UUID == "" {
		err = errors.New("containerd has no id")
	}
	return s.UUID, err
}

// Version is containerd's.
func (c *Client) Version(ctx context.Context) (string, error) {
	v, err := c.client.Version(ctx)
	return v.Version, err
}

// Runtime says what the CRI service lacks to run pods; an error where there is no such service.
func (c *Client) Runtime(ctx context.Context) (lacks []string, err error) {
	return cri.Lacks(ctx, c.pods)
}

// foreign are the namespaces of Docker, which keeps its own mind about its containers.
func foreign(namespace string) bool { return namespace == "moby" || namespace == "plugins.moby" }

// Uses reports whether containers of a namespace are ours to look at.
func (c *Client) Uses(namespace string) bool {
	if len(c.only) > 0 {
		return slices.Contains(c.only, namespace)
	}
	return !foreign(namespace)
}

// Namespaces lists those in use.
func (c *Client) Namespaces(ctx context.Context) ([]string, error) {
	all, err := c.client.NamespaceService().List(ctx)
	return slices.DeleteFunc(all, func(n string) bool { return !c.Uses(n) }), err
}

// Pause stops all processes of a container.
func (c *Client) Pause(ctx context.Context, namespace, id string) error {
	_, err := c.client.TaskService().Pause(in(ctx, namespace), &tasks.PauseTaskRequest{ContainerID: id})
	return errgrpc.ToNative(err)
}

// Resume continues them.
func (c *Client) Resume(ctx context.Context, namespace, id string) error {
	_, err := c.client.TaskService().Resume(in(ctx, namespace), &tasks.ResumeTaskRequest{ContainerID: id})
	return errgrpc.ToNative(err)
}

// Unavailable reports whether an error means that containerd did not answer.
func Unavailable(err error) bool {
	return errdefs.IsUnavailable(err) || errors.Is(err, context.DeadlineExceeded)
}

func in(ctx context.Context, namespace string) context.Context {
	return namespaces.WithNamespace(ctx, namespace)
}
