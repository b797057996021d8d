package main

import (
	"context"
	"io"
	"log/slog"
	"testing"

	"github.com/alecthomas/kingpin/v2"

	"github.com/laxity/laxity/internal/reference"
)

func TestReference(t *testing.T) {
	c := &cli{app: kingpin.New("laxity", help), out: io.Discard,
		runs: map[string]func(context.Context, *slog.Logger) error{}, quiet: map[string]bool{}, endless: map[string]bool{}}
	c.register(io.Discard, io.Discard)
	reference.Keep(t, "laxity.md", reference.Program(c.app.Model(), map[string]string{
		defaultStateDir(): "`/var/lib/laxity` as root, else `~/.local/state/laxity`",
	}))
}
