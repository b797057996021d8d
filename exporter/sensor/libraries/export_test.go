package libraries

import "log/slog"

// Rescan is one rescan of Keep.
func Rescan(r *Registry) map[int]string { return r.rescan(slog.New(slog.DiscardHandler), nil) }
