package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/laxity/laxity/actuator/admission"
	"github.com/laxity/laxity/internal/unreachable"
)

// Client asks an actuator.
type Client struct {
	base string
	http *http.Client
}

// NewClient makes a client of the actuator at base, for example
// http://127.0.0.1:9871. client may be nil.
func NewClient(base string, client *http.Client) (*Client, error) {
	u, err := url.Parse(base)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("%q is no actuator address; write, for example, http://127.0.0.1:9871", base)
	}
	if client == nil {
		client = &http.Client{Timeout: 30 * time.Second}
	}
	return &Client{strings.TrimRight(base, "/"), client}, nil
}

// UnreachableError means that no actuator answers.
type UnreachableError struct {
	Address string
	Err     error
}

// Error implements error.
func (e *UnreachableError) Error() string {
	return unreachable.Error("actuator", e.Address, e.Err).Error()
}

// Unwrap implements errors.
func (e *UnreachableError) Unwrap() error { return e.Err }

// RefusedError is an answer other than success.
type RefusedError struct {
	Code int
	Failure
}

// Error implements error.
func (e *RefusedError) Error() string { return e.Failure.Error }

// Place asks for GPUs.
func (c *Client) Place(ctx context.Context, w Wanted) (Placed, error) {
	var out Placed
	err := c.do(ctx, http.MethodPost, "/api/v1/placements", w, &out)
	return out, err
}

// Nodes asks for the ranking.
func (c *Client) Nodes(ctx context.Context, w Wanted) (Nodes, error) {
	q := url.Values{}
	for name, v := range map[string]string{"deadline": string(w.Deadline), "gpu_memory": string(w.GPUMemory),
		"estimate": string(w.Estimate), "image": w.Image, "node": w.Node, "ranking": w.Ranking} {
		if v != "" {
			q.Set(name, v)
		}
	}
	var out Nodes
	err := c.do(ctx, http.MethodGet, "/api/v1/nodes?"+q.Encode(), nil, &out)
	return out, err
}

// Admission asks whether a deadline or share could be kept.
func (c *Client) Admission(ctx context.Context, q admission.Question) (admission.Answer, error) {
	var out admission.Answer
	err := c.do(ctx, http.MethodGet, "/api/v1/admission?"+q.Values().Encode(), nil, &out)
	return out, err
}

// List asks for the reservations.
func (c *Client) List(ctx context.Context) ([]Placement, error) {
	var out []Placement
	err := c.do(ctx, http.MethodGet, "/api/v1/placements", nil, &out)
	return out, err
}

// Check asks whether the reservation can be kept.
func (c *Client) Check(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodPost, "/api/v1/placements/"+url.PathEscape(id)+"/check", nil, nil)
}

// Bind says that the container is created.
func (c *Client) Bind(ctx context.Context, id, container string) error {
	return c.do(ctx, http.MethodPut, "/api/v1/placements/"+url.PathEscape(id)+"/container", map[string]string{"container_id": container}, nil)
}

// Release gives the reservation back.
func (c *Client) Release(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodDelete, "/api/v1/placements/"+url.PathEscape(id), nil, nil)
}

func (c *Client) do(ctx context.Context, method, path string, body, into any) error {
	var sent io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		sent = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, sent)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return &UnreachableError{c.base, err}
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		raw, _ := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
		refused := &RefusedError{Code: resp.StatusCode}
		if json.Unmarshal(raw, &refused.Failure) != nil || refused.Failure.Error == "" {
			refused.Failure.Error = fmt.Sprintf("the actuator at %s answers %s: %s", c.base, resp.Status, bytes.TrimSpace(raw[:min(len(raw), 300)]))
		}
		return refused
	}
	if into == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("answer of the actuator at %s: %w", c.base, err)
	}
	return nil
}
