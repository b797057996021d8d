// Package source reads the facts from an exporter: its snapshots, once and as a stream, and
// asks it to change settings of containers.
//
// It imports the standard library, exporter/task and internal/unreachable only.
package source

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/unreachable"
)

// Source is where snapshots come from.
type Source interface {
	// Snapshot returns the present one.
	Snapshot(ctx context.Context) (*task.Snapshot, error)
	// Watch sends the present snapshot and then every change (a slow reader may
	// miss some, never the latest) until ctx ends, then closes the channel.
	Watch(ctx context.Context) (<-chan *task.Snapshot, error)
}

// HTTP reads snapshots from an exporter's GET /api/v1/tasks.
type HTTP struct {
	base   string
	client *http.Client
	// Trouble is told why the stream broke, and nil when it is back; may be nil.
	Trouble func(error)
}

var _ Source = (*HTTP)(nil)

// maxSnapshot bounds one snapshot, bytes.
const maxSnapshot = 64 << 20

// NewHTTP makes a client of the exporter at base, for example
// http://127.0.0.1:9870. client may be nil; it must have no overall timeout,
// which would cut the stream.
func NewHTTP(base string, client *http.Client) (*HTTP, error) {
	u, err := url.Parse(base)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("%q is no exporter address; write, for example, http://127.0.0.1:9870", base)
	}
	if client == nil {
		client = &http.Client{}
	}
	return &HTTP{base: strings.TrimRight(base, "/") + "/api/v1/tasks", client: client}, nil
}

// Snapshot implements Source. It gives up after 5 s.
func (h *HTTP) Snapshot(ctx context.Context) (*task.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	resp, err := h.get(ctx, h.base)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var s task.Snapshot
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxSnapshot)).Decode(&s); err != nil {
		return nil, fmt.Errorf("snapshot of %s: %w", h.base, err)
	}
	return &s, nil
}

func (h *HTTP) get(ctx context.Context, address string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	resp, err := h.do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		refused := refusal(resp)
		switch {
		case refused.Reason != "":
			return nil, fmt.Errorf("%s: %w", address, refused)
		case refused.Code == http.StatusUnauthorized:
			return nil, fmt.Errorf("%w to %s", refused, address)
		}
		return nil, fmt.Errorf("exporter at %s answers %s; is it a laxity-exporter?", address, resp.Status)
	}
	return resp, nil
}

func (h *HTTP) do(req *http.Request) (*http.Response, error) {
	resp, err := h.client.Do(req)
	if err != nil {
		return nil, unreachable.At("exporter", req.URL, err)
	}
	return resp, nil
}

// Watch implements Source. It connects again, for ever, when the stream breaks.
func (h *HTTP) Watch(ctx context.Context) (<-chan *task.Snapshot, error) {
	out := make(chan *task.Snapshot, 1)
	go func() {
		defer close(out)
		const first = 50 * time.Millisecond
		wait := first
		for ctx.Err() == nil {
			n, err := h.stream(ctx, out)
			if n > 0 {
				wait = first
			}
			if ctx.Err() != nil {
				return
			}
			h.report(err)
			select {
			case <-ctx.Done():
			case <-time.After(wait):
			}
			wait = min(2*wait, 2*time.Second)
		}
	}()
	return out, nil
}

// stream reads one connection to its end and says how many snapshots came.
func (h *HTTP) stream(ctx context.Context, out chan *task.Snapshot) (n int, err error) {
	resp, err := h.get(ctx, h.base+"?watch=1")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 0, 64<<10), maxSnapshot)
	for lines.Scan() {
		var s task.Snapshot
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			return n, fmt.Errorf("snapshot stream of %s: %w", h.base, err)
		}
		if n++; n == 1 {
			h.report(nil)
		}
		Latest(out, &s)
	}
	return n, errors.Join(errors.New("the exporter's snapshot stream ended"), lines.Err())
}

func (h *HTTP) report(err error) {
	if h.Trouble != nil {
		h.Trouble(err)
	}
}

// Latest puts s into a channel of capacity 1, in place of what was not read
// yet. There must be one sender only.
func Latest(out chan *task.Snapshot, s *task.Snapshot) {
	for {
		select {
		case out <- s:
			return
		default:
		}
		select {
		case <-out:
		default:
		}
	}
}
