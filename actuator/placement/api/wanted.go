package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/laxity/laxity/actuator/nodes"
	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/actuator/placement/placer"
	"github.com/laxity/laxity/actuator/placement/reservation"
	"github.com/laxity/laxity/exporter/task"
)

// Text is a JSON string or number, as a person would write it: "9s" or 9.
type Text string

// UnmarshalJSON implements json.Unmarshaler.
func (t *Text) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] != '"' {
		var n json.Number
		if err := json.Unmarshal(b, &n); err != nil {
			return errors.New("write a number, or text with a unit such as 9s or 4GiB")
		}
		*t = Text(n)
		return nil
	}
	return json.Unmarshal(b, (*string)(t))
}

// Wanted is the body of POST /api/v1/placements.
type Wanted struct {
	// Deadline, GPUMemory and Estimate are as on the labels: 9s, 4GiB. Empty is
	// none, not known, not known.
	Deadline  Text `json:"deadline,omitempty"`
	GPUMemory Text `json:"gpu_memory,omitempty"`
	Estimate  Text `json:"estimate,omitempty"`
	// Image stands in for Estimate: how long its tasks took.
	Image string `json:"image,omitempty"`
	// Count is how many containers, all or none; 1 by default.
	Count *int `json:"count,omitempty"`
	// Node is the only one that will do.
	Node string `json:"node,omitempty"`
	// DryRun only explains; then Ranking may choose how.
	DryRun  bool   `json:"dry_run,omitempty"`
	Ranking string `json:"ranking,omitempty"`
}

// Request reads it; an error says what to write instead.
func (w Wanted) Request() (req placer.Request, err error) {
	duration := func(name string, text Text) (task.Seconds, error) {
		if text == "" {
			return 0, nil
		}
		d, err := task.ParseDeadline(string(text))
		if err != nil {
			return 0, fmt.Errorf("%s: %s", name, strings.Replace(err.Error(), "is not a deadline", "will not do", 1))
		}
		return task.SecondsOf(d), nil
	}
	if req.Deadline, err = duration("deadline", w.Deadline); err != nil {
		return req, err
	}
	if req.Estimate, err = duration("estimate", w.Estimate); err != nil {
		return req, err
	}
	if w.GPUMemory != "" {
		if req.GPUMemory, err = task.ParseBytes(string(w.GPUMemory)); err != nil {
			return req, fmt.Errorf("gpu_memory: %w", err)
		}
	}
	if w.Ranking != "" {
		if req.Method, err = placement.ParseMethod(w.Ranking); err != nil {
			return req, err
		}
	}
	req.Count = 1
	if w.Count != nil {
		req.Count = *w.Count
	}
	if req.Count < 1 || req.Count > placer.MaxCount {
		return req, fmt.Errorf("count is %d: write 1 to %d", req.Count, placer.MaxCount)
	}
	req.Image, req.Node = w.Image, w.Node
	return req, nil
}

// Placement is one reservation.
type Placement struct {
	ID   string `json:"id"`
	Node string `json:"node"`
	GPU  string `json:"gpu"`
	// Simulated: the GPU is a stand-in, which no container runtime can hand out.
	Simulated bool              `json:"simulated,omitempty"`
	Memory    uint64            `json:"gpu_memory_bytes,omitempty"`
	Deadline  task.Seconds      `json:"deadline_seconds,omitempty"`
	Estimate  task.Seconds      `json:"estimate_seconds,omitempty"`
	Image     string            `json:"image,omitempty"`
	State     reservation.State `json:"state"`
	// Pod is that of Kubernetes for which it is.
	Pod       reservation.Pod `json:"pod,omitzero"`
	Container string          `json:"container_id,omitempty"`
	Made      time.Time       `json:"made"`
	Expires   time.Time       `json:"expires,omitzero"`
	// Docker is the way to the node's engine, if nodes.yaml has one. Local: it is
	// the engine beside this actuator.
	Docker nodes.Docker `json:"docker,omitzero"`
	Local  bool         `json:"local,omitempty"`
}

// Placed is the answer to POST /api/v1/placements.
type Placed struct {
	Placements []Placement `json:"placements"`
	// Ranking is what the first was chosen from.
	Ranking Nodes `json:"ranking"`
}

// Failure is the answer to what failed.
type Failure struct {
	Error   string `json:"error"`
	Ranking *Nodes `json:"ranking,omitempty"`
}

// simDriver ends the driver version of simulated GPUs.
const simDriver = "-sim"

func (s *Server) placement(e reservation.Entry, r placement.Ranking) Placement {
	p := Placement{
		ID: e.ID, Node: e.Node, GPU: e.GPU, Memory: e.Memory, Deadline: e.Deadline, Estimate: e.Estimate,
		Image: e.Image, State: e.State, Pod: e.Pod, Container: e.Container, Made: e.Made, Expires: e.Expires,
	}
	if n, ok := s.o.Nodes.Find(e.Node); ok {
		p.Docker = n.Docker
	}
	p.Local = !p.Docker.Known() && e.Node == s.o.Local()
	for _, v := range r {
		if v.Node.Name != e.Node {
			continue
		}
		for _, g := range v.Node.GPUs {
			p.Simulated = p.Simulated || g.UUID == e.GPU && strings.HasSuffix(g.Driver, simDriver)
		}
	}
	return p
}

// maxBody bounds what a client may send, bytes.
const maxBody = 64 << 10

func decode(r *http.Request, into any) error {
	dec := json.NewDecoder(io.LimitReader(r.Body, maxBody))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return fmt.Errorf("the body cannot be read: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("the body has something behind the JSON object")
	}
	return nil
}
