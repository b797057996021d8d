package main

import (
	"os"
	"testing"

	"github.com/laxity/laxity/internal/reference"
)

func TestReference(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	model, same := application(&config{}).Model(), map[string]string{host: "the host name"}
	reference.Keep(t, "laxity-exporter.md", reference.Program(model, same))
	reference.KeepPackaged(t, "man/laxity-exporter.8", reference.Manual(model, 8, same))
}
