package exporter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/exporter/tracker"
)

const (
	maxBody      = 4 << 10 // bytes of a request
	deadlineHint = `send {"deadline": "9s"}, a number of seconds, or {"deadline": null} to go back to the label`
)

// serveDeadline changes the relative deadline of a running container:
// PUT /api/v1/containers/{id}/deadline. It answers with the container as it is
// then, once the change is on disk.
func (e *Exporter) serveDeadline(w http.ResponseWriter, r *http.Request) {
	relative, err := readDeadline(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error(), deadlineHint)
		return
	}
	if err := e.opt.Limits.CheckDeadline(relative); err != nil {
		refuse(w, http.StatusUnprocessableEntity, err.Error(), deadlineHint)
		return
	}
	c, err := e.tracker.SetDeadline(r.Context(), r.PathValue("id"), relative)
	switch {
	case errors.Is(err, tracker.ErrUnknownContainer):
		refuse(w, http.StatusNotFound, fmt.Sprintf("%q: %v", r.PathValue("id"), err),
			"give the name or the id of a container that docker ps shows")
	case err != nil:
		refuse(w, http.StatusInternalServerError, "the deadline holds, but could not be stored: "+err.Error(),
			"look at the disk of --state-dir; a restart would lose the change")
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(c)
	}
}

// SetDeadline changes the relative deadline of a running container, by name or id;
// 0 is back to its label's. An error that wraps neither tracker.ErrUnknownContainer
// nor task.ErrLimit means that the change holds and could not be stored.
func (e *Exporter) SetDeadline(ctx context.Context, container string, relative time.Duration) error {
	if err := e.opt.Limits.CheckDeadline(relative); err != nil {
		return err
	}
	_, err := e.tracker.SetDeadline(ctx, container, relative)
	return err
}

// readDeadline reads the body; 0 means null.
func readDeadline(body interface{ Read([]byte) (int, error) }) (time.Duration, error) {
	var change struct {
		Deadline json.RawMessage `json:"deadline"`
	}
	dec := json.NewDecoder(body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&change); err != nil {
		return 0, fmt.Errorf("the body is not understood: %w", err)
	}
	text := string(bytes.TrimSpace(change.Deadline))
	switch {
	case text == "":
		return 0, errors.New("the body has no deadline")
	case text == "null":
		return 0, nil
	case text[0] == '"':
		if err := json.Unmarshal(change.Deadline, &text); err != nil {
			return 0, err
		}
	}
	return task.ParseDeadline(text)
}
