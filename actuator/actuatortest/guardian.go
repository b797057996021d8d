// Package actuatortest lets a test program stand in for the programs that the actuator
// starts from its own.
package actuatortest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/laxity/laxity/actuator/undo"
)

// Main is for TestMain: it runs the tests, or is the guardian that an actuator of a
// test has started. containerOf is as in undo.Options.
func Main(m *testing.M, containerOf func(pid int) (id string, ok bool, err error)) {
	if len(os.Args) < 2 || os.Args[1] != "guardian" {
		os.Exit(m.Run())
	}
	o := undo.Options{Once: true, ContainerOf: containerOf, Logger: slog.Default()}
	for _, arg := range os.Args[2:] {
		if dir, ok := strings.CutPrefix(arg, "--state-dir="); ok {
			o.StateDir = dir
		}
	}
	if err := undo.RunGuardian(context.Background(), o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
