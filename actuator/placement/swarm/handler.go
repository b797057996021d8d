package swarm

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/swarm"

	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/exporter/task"
)

// question is the body of POST /api/v1/swarm/services.
type question struct {
	// Deadline and GPUMemory are written as in the labels laxity.deadline and
	// laxity.gpu-memory.
	Deadline  string `json:"deadline"`
	GPUMemory string `json:"gpu_memory"`
	// Service is as in Docker's POST /services/create.
	Service swarm.ServiceSpec `json:"service"`
}

func (q question) request() (req placement.Request, err error) {
	if q.Deadline != "" {
		d, err := task.ParseDeadline(q.Deadline)
		if err != nil {
			return req, err
		}
		req.Deadline = task.SecondsOf(d)
	}
	if q.GPUMemory != "" {
		if req.GPUMemory, err = task.ParseBytes(q.GPUMemory); err != nil {
			return req, err
		}
	}
	return req, nil
}

// maxBytes bounds a question.
const maxBytes = 1 << 20

// Handler answers POST /api/v1/swarm/services: 201 with the id and the node; 400
// for what cannot be read or placed by one decision, 409 when no node can take it
// or the engine refuses it, 503 when the facts cannot be had or this is no
// manager.
func (s *Swarm) Handler(gpus Reserver) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q question
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBytes)).Decode(&q); err != nil {
			answer(w, http.StatusBadRequest, failure(err))
			return
		}
		req, err := q.request()
		if err == nil {
			err = single(q.Service)
		}
		if err != nil {
			answer(w, http.StatusBadRequest, failure(err))
			return
		}
		placed, err := s.Place(r.Context(), q.Service, req, gpus)
		switch {
		case err == nil:
			answer(w, http.StatusCreated, placed)
		case errors.Is(err, ErrNoNode), errdefs.IsConflict(err):
			answer(w, http.StatusConflict, failure(err))
		case errdefs.IsInvalidArgument(err):
			answer(w, http.StatusBadRequest, failure(err))
		default:
			answer(w, http.StatusServiceUnavailable, failure(err))
		}
	})
}

func failure(err error) map[string]string { return map[string]string{"error": err.Error()} }

func answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	// The client is gone if this fails: there is nobody to tell.
	_ = json.NewEncoder(w).Encode(v)
}
