package main

import (
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/laxity/laxity/bench/experiments"
	"github.com/laxity/laxity/internal/reference"
)

func TestReference(t *testing.T) {
	reference.Keep(t, "laxity-bench.md", reference.Program(newCLI(io.Discard, io.Discard).app.Model(), nil))
}

// run runs the program and returns its exit code and what it printed.
func run(args ...string) (code int, stdout, stderr string) {
	var out, errs strings.Builder
	code = realMain(args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"--no-such-flag"}, {"nonsense"}, {"events", "--device=tpu"}} {
		code, _, stderr := run(args...)
		if code != exitUsage || !strings.Contains(stderr, "--help") {
			t.Errorf("laxity-bench %v: code %d, %q; want %d and a word about --help", args, code, stderr, exitUsage)
		}
	}
	code, _, stderr := run("events", "--set", "task=3")
	if code != exitFailure || !strings.Contains(stderr, `"task"`) || !strings.Contains(stderr, "--set tasks=") {
		t.Errorf("a setting that does not exist: code %d, %q", code, stderr)
	}
}

func TestListNamesEveryExperiment(t *testing.T) {
	code, stdout, stderr := run("list", "--json", "--out=../../bench/results")
	var list []listed
	if err := json.Unmarshal([]byte(stdout), &list); code != exitOK || err != nil {
		t.Fatalf("code %d, %v, %s", code, err, stderr)
	}
	if len(list) != len(experiments.All()) || list[0].Stored == nil {
		t.Errorf("%d of %d experiments; the first one's result: %+v", len(list), len(experiments.All()), list[0].Stored)
	}
}
