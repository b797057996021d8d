package source

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/laxity/laxity/exporter/task"
)

// Changer is a Source that can change settings of a running container at its exporter.
type Changer interface {
	Change(ctx context.Context, containerID string, change task.Change) error
}

var _ Changer = (*HTTP)(nil)

// maxAnswer bounds what is read of an exporter's answer, bytes.
const maxAnswer = 64 << 10

// RefusedError is an exporter's answer other than success. Reason and Hint are empty where it is not
// in an exporter's own form.
type RefusedError struct {
	Code                 int
	Status, Reason, Hint string
}

// Error implements error.
func (e *RefusedError) Error() string {
	if e.Reason == "" {
		return "exporter answers " + e.Status
	}
	return "the exporter refuses: " + strings.TrimSuffix(e.Reason+"; "+e.Hint, "; ")
}

// Change implements Changer. It gives up after 5 s.
func (h *HTTP) Change(ctx context.Context, containerID string, change task.Change) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	answer, err := h.patch(ctx, containerID, change)
	if err != nil {
		return err
	}
	return answer.Close()
}

// Changed changes settings of a container, by its name or id, and returns it as it is then. The
// error is a RefusedError where the exporter answers and does not do it.
func (h *HTTP) Changed(ctx context.Context, container string, change task.Change) (c task.Container, err error) {
	answer, err := h.patch(ctx, container, change)
	if err != nil {
		return c, err
	}
	defer answer.Close()
	err = json.NewDecoder(answer).Decode(&c)
	return c, err
}

// patch sends PATCH /api/v1/containers/{id} and returns the body of the answer.
func (h *HTTP) patch(ctx context.Context, container string, change task.Change) (io.ReadCloser, error) {
	body, err := json.Marshal(change)
	if err != nil {
		return nil, err
	}
	address := strings.TrimSuffix(h.base, "/tasks") + "/containers/" + url.PathEscape(container)
	req, err := http.NewRequestWithContext(ctx, http.MethodPatch, address, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := h.do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	return nil, refusal(resp)
}

// refusal reads an answer that is no success, and closes its body.
func refusal(resp *http.Response) *RefusedError {
	defer resp.Body.Close()
	refused := &RefusedError{Code: resp.StatusCode, Status: resp.Status}
	var answer struct{ Error, Hint string }
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer)) // the status says the rest
	if json.Unmarshal(raw, &answer) == nil {
		refused.Reason, refused.Hint = answer.Error, answer.Hint
	}
	return refused
}
