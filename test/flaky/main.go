// Command flaky fails when a test passed only on a second try and is not on the list of
// those that may.
//
//	flaky REPORT LIST
//
// REPORT is what gotestsum --rerun-fails-report writes. LIST has a line for each test that
// may fail once: its name with its package as the report has it, since when (2026-11-22),
// and the cause. An entry is good for 30 days: a cause is mended, not kept.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"time"
)

// patience is how long an entry of the list is good.
const patience = 30 * 24 * time.Hour

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: flaky REPORT LIST")
		os.Exit(2)
	}
	problems, err := check(os.Args[1], os.Args[2], time.Now())
	if err != nil {
		problems = append(problems, err.Error())
	}
	for _, problem := range problems {
		fmt.Fprintln(os.Stderr, "FLAKY", problem)
	}
	if len(problems) > 0 {
		os.Exit(1)
	}
}

func check(report, list string, now time.Time) (problems []string, err error) {
	allowed, err := os.Open(list)
	if err != nil {
		return nil, err
	}
	defer allowed.Close()
	known, problems, err := read(allowed, now)
	if err != nil {
		return nil, err
	}
	again, err := os.Open(report)
	if errors.Is(err, fs.ErrNotExist) {
		return problems, nil // no test was run again
	}
	if err != nil {
		return nil, err
	}
	defer again.Close()
	names, err := rerun(again)
	for _, name := range names {
		if _, ok := known[name]; !ok {
			problems = append(problems, name+" failed, and passed when it was run again: mend it, or list it with its cause in "+list)
		}
	}
	return problems, err
}

// read reads the list: the tests that may fail once, and what is wrong with the list.
func read(list io.Reader, now time.Time) (known map[string]string, problems []string, err error) {
	known = map[string]string{}
	lines := bufio.NewScanner(list)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) < 3 {
			problems = append(problems, fmt.Sprintf("%q in the list: want TEST DATE CAUSE", line))
			continue
		}
		name, since, cause := fields[0], fields[1], strings.Join(fields[2:], " ")
		date, err := time.Parse(time.DateOnly, since)
		switch {
		case err != nil:
			problems = append(problems, fmt.Sprintf("%s in the list: %v", name, err))
		case date.After(now):
			problems = append(problems, fmt.Sprintf("%s is in the list since %s, which is to come", name, since))
		case now.Sub(date) > patience:
			problems = append(problems, fmt.Sprintf("%s is in the list since %s, for over 30 days: mend it (%s)", name, since, cause))
		default:
			known[name] = cause
		}
	}
	return known, problems, lines.Err()
}

var entry = regexp.MustCompile(`^(\S+): (\d+) runs, (\d+) failures$`)

// rerun returns the tests in a report of gotestsum, which has those that failed at least once.
func rerun(report io.Reader) (names []string, err error) {
	lines := bufio.NewScanner(report)
	for lines.Scan() {
		if lines.Text() == "" {
			continue
		}
		m := entry.FindStringSubmatch(lines.Text())
		if m == nil {
			return names, fmt.Errorf("not a line of gotestsum's report: %q", lines.Text())
		}
		names = append(names, m[1])
	}
	return names, lines.Err()
}
