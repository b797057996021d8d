// Package cri talks to a container engine by Kubernetes' container runtime interface (CRI, version 1):
// which containers there are, their pods, and what the engine says of one. CRI-O has no other
// interface for that; containerd's CRI service answers in the same way. The exporter's adapter and
// the actuator's share it, so that both read the same labels.
//
// It stands upon gRPC and the API of the CRI. Of ours it imports internal/oci and internal/pod.
package cri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// reconnect bounds the time between two tries to connect while the engine is away.
	reconnect = time.Second
	// largest bounds an answer: a list of all containers is one. The kubelet has the same bound.
	largest = 16 << 20
)

// Client is a connection to one engine. It is safe for concurrent use. Its errors are those of
// containerd/errdefs.
type Client struct {
	conn *grpc.ClientConn
	api  api.RuntimeServiceClient
}

// New prepares to talk to the engine whose socket has this path, with or without unix:// before it.
// It does not connect yet.
func New(address string) (*Client, error) {
	path := strings.TrimPrefix(address, "unix://")
	if path == "" {
		return nil, errors.New("CRI: no address of the engine's socket is given (--crio.address)")
	}
	delays := backoff.DefaultConfig
	delays.MaxDelay, delays.BaseDelay = reconnect, reconnect/10
	conn, err := grpc.NewClient("unix:"+path,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: delays, MinConnectTimeout: 10 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(largest)))
	if err != nil {
		return nil, fmt.Errorf("CRI at %s: %w", path, err)
	}
	return &Client{conn, api.NewRuntimeServiceClient(conn)}, nil
}

// Close closes the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Version says which engine answers, such as cri-o, and its version.
func (c *Client) Version(ctx context.Context) (name, version string, err error) {
	v, err := c.api.Version(ctx, &api.VersionRequest{})
	return v.GetRuntimeName(), v.GetRuntimeVersion(), errgrpc.ToNative(err)
}

// Lacks says what the engine lacks to run pods.
func (c *Client) Lacks(ctx context.Context) ([]string, error) { return Lacks(ctx, c.api) }

// Lacks is the same for a connection that somebody else made.
func Lacks(ctx context.Context, service api.RuntimeServiceClient) (lacks []string, err error) {
	s, err := service.Status(ctx, &api.StatusRequest{})
	if err != nil {
		return nil, errgrpc.ToNative(err)
	}
	for _, condition := range s.GetStatus().GetConditions() {
		if !condition.GetStatus() {
			lacks = append(lacks, condition.GetType()+": "+condition.GetMessage())
		}
	}
	return lacks, nil
}

// Follow calls changed for each event that the engine tells, until ctx ends or the stream does. The
// CRI does not tell when the engine begins to send, and engines drop events under load: an event is
// a reason to look, and no more. The error wraps errdefs.ErrNotImplemented where the engine tells of
// none: containerd before 1.7, and CRI-O unless enable_pod_events is set, which ends the stream at
// once.
func (c *Client) Follow(ctx context.Context, changed func()) error {
	stream, err := c.api.GetContainerEvents(ctx, &api.GetEventsRequest{})
	for told := false; err == nil; told = true {
		if _, err = stream.Recv(); errors.Is(err, io.EOF) && !told {
			return fmt.Errorf("the stream of events ends at once: %w", errdefs.ErrNotImplemented)
		}
		if err == nil {
			changed()
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, io.EOF) {
		return err
	}
	return errgrpc.ToNative(err)
}

// Unavailable reports whether an error means that the engine did not answer.
func Unavailable(err error) bool {
	return errdefs.IsUnavailable(err) || errors.Is(err, context.DeadlineExceeded)
}
