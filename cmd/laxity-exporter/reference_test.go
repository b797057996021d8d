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
	reference.Keep(t, "laxity-exporter.md", reference.Program(application(&config{}).Model(), map[string]string{host: "the host name"}))
}
