package main

import (
	"context"
	"io"
	"log/slog"
	"testing"

	"github.com/alecthomas/kingpin/v2"

	"github.com/laxity/laxity/cmd/internal/completion"
	"github.com/laxity/laxity/internal/reference"
)

func TestReference(t *testing.T) {
	c := &cli{app: kingpin.New("laxity", help), out: io.Discard,
		runs: map[string]func(context.Context, *slog.Logger) error{}, quiet: map[string]bool{}, endless: map[string]bool{}}
	c.register(io.Discard, io.Discard)
	same := map[string]string{defaultStateDir(): "`/var/lib/laxity` as root, else `~/.local/state/laxity`"}
	reference.Keep(t, "laxity.md", reference.Program(c.app.Model(), same))
	reference.KeepPackaged(t, "man/laxity.1", reference.Manual(c.app.Model(), 1, same))
}

// TestReferenceCompletions: packages install the scripts for all programs.
func TestReferenceCompletions(t *testing.T) {
	for _, program := range []string{"laxity", "laxity-exporter", "laxity-actuator"} {
		for _, shell := range completion.Shells {
			reference.KeepPackaged(t, "completions/"+completion.File(shell, program), completion.Script(shell, program))
		}
	}
}
