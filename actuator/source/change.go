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

	"github.com/laxity/laxity/exporter/task"
)

// Changer is a Source that can change settings of a running container at its exporter.
type Changer interface {
	Change(ctx context.Context, containerID string, change task.Change) error
}

var _ Changer = (*HTTP)(nil)

// maxAnswer bounds what is read of an exporter's answer, bytes.
const maxAnswer = 64 << 10

// Change implements Changer by PATCH /api/v1/containers/{id}. It gives up after 5 s.
func (h *HTTP) Change(ctx context.Context, containerID string, change task.Change) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	body, err := json.Marshal(change)
	if err != nil {
		return err
	}
	address := strings.TrimSuffix(h.base, "/tasks") + "/containers/" + url.PathEscape(containerID)
	req, err := http.NewRequestWithContext(ctx, http.MethodPatch, address, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := h.do(req)
	if err != nil {
		return err
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
