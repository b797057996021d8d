package evaluator

import (
	"context"
	"log/slog"
)

// troubles passes only warnings and errors. The storage also logs details that no user needs, such
// as that a new folder has no log yet.
type troubles struct{ slog.Handler }

// Enabled implements slog.Handler.
func (t troubles) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && t.Handler.Enabled(ctx, l)
}

// WithAttrs implements slog.Handler.
func (t troubles) WithAttrs(attrs []slog.Attr) slog.Handler {
	return troubles{t.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (t troubles) WithGroup(name string) slog.Handler { return troubles{t.Handler.WithGroup(name)} }
