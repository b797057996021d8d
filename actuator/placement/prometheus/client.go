package prometheus

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

// DefaultTimeout bounds one query; all facts of 10,000 nodes take seconds.
const DefaultTimeout = 20 * time.Second

// ErrPartial means that Prometheus answered with a warning: a part of the series
// may be missing, and so a node.
var ErrPartial = errors.New("prometheus answered with partial data")

// Client queries a Prometheus server, or what speaks its API, over HTTP. It
// implements Querier.
type Client struct {
	url     string
	api     v1.API
	timeout time.Duration
}

// NewClient makes a Client for a URL such as http://localhost:9090. The round
// tripper carries TLS and authorisation; nil is one without either.
func NewClient(address string, rt http.RoundTripper) (*Client, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("prometheus URL %q is not valid: write one like http://localhost:9090", address)
	}
	if rt == nil {
		// Compressing an answer takes the server longer than the answer itself.
		rt = &http.Transport{Proxy: http.ProxyFromEnvironment, DisableCompression: true}
	}
	c, err := api.NewClient(api.Config{Address: address, RoundTripper: rt})
	if err != nil {
		return nil, fmt.Errorf("prometheus URL %q: %w", address, err)
	}
	return &Client{url: u.Redacted(), api: v1.NewAPI(c), timeout: DefaultTimeout}, nil
}

// Query implements Querier.
func (c *Client) Query(ctx context.Context, expr string, at time.Time) (model.Vector, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	value, warnings, err := c.api.Query(ctx, expr, at)
	if err != nil {
		return nil, fmt.Errorf("query Prometheus at %s: %w; check that it runs and can be reached from here", c.url, err)
	}
	if len(warnings) > 0 {
		return nil, fmt.Errorf("query Prometheus at %s: %w: %s", c.url, ErrPartial, strings.Join(warnings, "; "))
	}
	switch v := value.(type) {
	case model.Vector:
		return v, nil
	case *model.Scalar:
		return model.Vector{{Metric: model.Metric{}, Value: v.Value, Timestamp: v.Timestamp}}, nil
	default:
		return nil, fmt.Errorf("query %q: the result is a %s; an instant vector or a scalar is needed", expr, value.Type())
	}
}
