package main

import (
	"testing"

	"github.com/laxity/laxity/internal/reference"
)

func TestReference(t *testing.T) {
	app, _ := application()
	reference.Keep(t, "laxity-actuator.md", reference.Program(app.Model(), nil))
	reference.KeepPackaged(t, "man/laxity-actuator.8", reference.Manual(app.Model(), 8, nil))
}
