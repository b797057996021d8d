package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestCheck(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		report, list string
		want         []string // how each problem begins
	}{
		"nothing":  {"", "# TEST DATE CAUSE\n", nil},
		"unlisted": {"m/p.TestA: 2 runs, 1 failures\nm/p.TestB/x: 2 runs, 1 failures\n", "", []string{"m/p.TestA failed", "m/p.TestB/x failed"}},
		"listed":   {"m/p.TestA: 2 runs, 1 failures\n", "m/p.TestA 2026-11-01 issue 3: the engine is late\n", nil},
		"another":  {"m/p.TestA: 2 runs, 1 failures\n", "m/q.TestA 2026-11-01 issue 3\n", []string{"m/p.TestA failed"}},
		"too old": {"m/p.TestA: 2 runs, 1 failures\n", "m/p.TestA 2026-10-01 issue 3\n",
			[]string{"m/p.TestA is in the list since 2026-10-01, for over 30 days", "m/p.TestA failed"}},
		"too old, and not run again": {"", "m/p.TestA 2026-10-01 issue 3\n", []string{"m/p.TestA is in the list since"}},
		"to come":                    {"", "m/p.TestA 2026-12-01 issue 3\n", []string{"m/p.TestA is in the list since"}},
		"no cause":                   {"", "m/p.TestA 2026-11-01\n", []string{`"m/p.TestA 2026-11-01" in the list: want`}},
		"no date":                    {"", "m/p.TestA soon a cause\n", []string{"m/p.TestA in the list"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			report, list := filepath.Join(dir, "report"), filepath.Join(dir, "list")
			write(t, report, tc.report)
			write(t, list, tc.list)
			got, err := check(report, list, now)
			if err != nil || !slices.EqualFunc(got, tc.want, strings.HasPrefix) {
				t.Errorf("got %q, %v; want %q", got, err, tc.want)
			}
		})
	}
}

func TestCheckFiles(t *testing.T) {
	dir := t.TempDir()
	list := filepath.Join(dir, "list")
	if _, err := check(filepath.Join(dir, "report"), list, time.Now()); err == nil {
		t.Error("no list, and no error")
	}
	write(t, list, "")
	if problems, err := check(filepath.Join(dir, "report"), list, time.Now()); err != nil || len(problems) > 0 {
		t.Errorf("without a report: %q, %v", problems, err)
	}
	report := filepath.Join(dir, "report")
	write(t, report, "TestA flaked\n")
	if _, err := check(report, list, time.Now()); err == nil {
		t.Error("a report of another form, and no error")
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
