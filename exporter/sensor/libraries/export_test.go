package libraries

import (
	"context"
	"log/slog"
	"time"
)

// SetLimit changes how long Keep waits for one search.
func SetLimit(r *Registry, limit time.Duration) { r.searches.Limit = limit }

// Rescan is one rescan of Keep.
func Rescan(r *Registry) map[int]string {
	return r.rescan(context.Background(), slog.New(slog.DiscardHandler), nil)
}
