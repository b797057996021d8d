package forward

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/laxity/laxity/actuator/nodes"
	"github.com/laxity/laxity/actuator/webhook"
)

// Header marks a message that was passed on: whoever gets it acts on it or
// ignores it, and never passes it on again.
const Header = "Laxity-Forwarded"

type markKey struct{}

// Mark keeps the header of a request in its context, where Split finds it.
func Mark(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(Header) != "" {
			r = r.WithContext(context.WithValue(r.Context(), markKey{}, true))
		}
		next.ServeHTTP(w, r)
	})
}

// Marked reports whether the message of this context was passed on already.
func Marked(ctx context.Context) bool { return ctx.Value(markKey{}) != nil }

// defaultTimeout is what Options.Timeout is by default: Alertmanager waits for 10 s, and repeats.
const defaultTimeout = 2 * time.Second

// sender posts messages, on connections that it keeps.
type sender struct {
	timeout time.Duration

	mu      sync.Mutex
	clients map[string]client // by node
}

type client struct {
	of   nodes.Node
	http *http.Client
}

func newSender(timeout time.Duration) *sender {
	return &sender{timeout: timeout, clients: map[string]client{}}
}

func (s *sender) client(to nodes.Node) (*http.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The list of nodes is made anew when its file changes.
	if c, ok := s.clients[to.Name]; ok && c.of == to {
		return c.http, nil
	}
	c, err := to.Client()
	if err != nil {
		return nil, err
	}
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if old, ok := s.clients[to.Name]; ok {
		old.http.CloseIdleConnections()
	}
	s.clients[to.Name] = client{to, c}
	return c, nil
}

func (s *sender) send(ctx context.Context, to nodes.Node, m webhook.Message) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	c, err := s.client(to)
	if err != nil {
		return err
	}
	body, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.Actuator+"/api/v1/alerts", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(Header, "1")
	resp, err := c.Do(req)
	if err != nil {
		return fmt.Errorf("%w; is laxity-actuator running there, and is its address in the list of nodes right?", err)
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, 500))
	text := strings.TrimSpace(string(answer))
	switch code := resp.StatusCode; {
	case code/100 == 2:
		return nil
	case code == http.StatusBadRequest, code == http.StatusRequestEntityTooLarge:
		return fmt.Errorf("%w: %s: %s", ErrRefused, resp.Status, text)
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return fmt.Errorf("%s: %s: give the credentials as http_config in the list of nodes", resp.Status, text)
	default:
		return fmt.Errorf("%s answers %s: %s", to.Actuator, resp.Status, text)
	}
}
