package main

import (
	"io"
	"testing"

	"github.com/laxity/laxity/cmd/internal/completion"
	"github.com/laxity/laxity/internal/reference"
)

func TestReference(t *testing.T) {
	c := newCLI(io.Discard, io.Discard)
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
