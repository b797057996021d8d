package source

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// DeadlineSetter is a Source that can change the relative deadline of a container
// at its exporter; 0 is back to the label's.
type DeadlineSetter interface {
	SetDeadline(ctx context.Context, containerID string, relative time.Duration) error
}

var _ DeadlineSetter = (*HTTP)(nil)

// maxAnswer bounds what is read of an exporter's answer, bytes.
const maxAnswer = 64 << 10

// SetDeadline implements DeadlineSetter by PUT /api/v1/containers/{id}/deadline.
// It gives up after 5 s.
func (h *HTTP) SetDeadline(ctx context.Context, containerID string, relative time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var change struct {
		Deadline *string `json:"deadline"`
	}
	if relative != 0 {
		text := relative.String()
		change.Deadline = &text
	}
	body, err := json.Marshal(change)
	if err != nil {
		return err
	}
	address := strings.TrimSuffix(h.base, "/tasks") + "/containers/" + url.PathEscape(containerID) + "/deadline"
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, address, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := h.client.Do(req)
	if err != nil {
		return fmt.Errorf("exporter does not answer (is laxity-exporter running there?): %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	var refusal struct{ Error, Hint string }
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer)) // the status says the rest
	if json.Unmarshal(raw, &refusal) == nil && refusal.Error != "" {
		return fmt.Errorf("the exporter refuses: %w", errors.New(strings.TrimSuffix(refusal.Error+"; "+refusal.Hint, "; ")))
	}
	return fmt.Errorf("exporter answers %s", resp.Status)
}
