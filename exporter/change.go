package exporter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/exporter/tracker"
)

const (
	maxBody    = 4 << 10 // bytes of a request
	changeHint = `send {"deadline": "9s"}, {"share": "30%"} or both; null instead goes back to the label`
)

// serveChange changes settings of a running container: PATCH /api/v1/containers/{id}. What the
// body leaves out stays. It answers with the container as it is then, once the change is on disk.
func (e *Exporter) serveChange(w http.ResponseWriter, r *http.Request) {
	var change task.Change
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&change); err != nil {
		refuse(w, http.StatusBadRequest, "the body is not understood: "+err.Error(), changeHint)
		return
	}
	if err := e.opt.Limits.CheckChange(change); err != nil {
		refuse(w, http.StatusUnprocessableEntity, err.Error(), "choose within the limit, or start the exporter with another one")
		return
	}
	id := r.PathValue("id")
	if plain, err := url.PathUnescape(id); err == nil { // a pod's container has slashes in its name
		id = plain
	}
	c, err := e.tracker.Change(r.Context(), id, change)
	switch {
	case errors.Is(err, tracker.ErrUnknownContainer):
		refuse(w, http.StatusNotFound, fmt.Sprintf("%q: %v", id, err),
			"give the name or the id of a container that laxity ps shows")
	case errors.Is(err, tracker.ErrNotChanged):
		refuse(w, http.StatusServiceUnavailable, fmt.Sprintf("%q: %v", id, err),
			"the exporter is stopping, or did not answer in time: send the change again")
	case err != nil:
		refuse(w, http.StatusInternalServerError, "the change holds, but could not be stored: "+err.Error(),
			"look at the disk of --state-dir; a restart would lose the change")
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(c)
	}
}

// Change changes settings of a running container, by name or id. Nothing was changed where the
// error wraps tracker.ErrUnknownContainer, tracker.ErrNotChanged or task.ErrLimit. Any other error
// means that the change holds and could not be stored.
func (e *Exporter) Change(ctx context.Context, container string, change task.Change) error {
	if err := e.opt.Limits.CheckChange(change); err != nil {
		return err
	}
	_, err := e.tracker.Change(ctx, container, change)
	return err
}
