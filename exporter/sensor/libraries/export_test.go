package libraries

import (
	"context"
	"log/slog"
)

// Rescan is one rescan of Keep.
func Rescan(r *Registry) map[int]string {
	return r.rescan(context.Background(), slog.New(slog.DiscardHandler), nil)
}
