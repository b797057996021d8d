package experiments

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/laxity/laxity/bench"
)

// Stored reads every result in a folder, by experiment.
func Stored(results fs.FS) (map[string]bench.Result, error) {
	names, err := fs.Glob(results, "*.json")
	if err != nil {
		return nil, err
	}
	older, err := readOlder(results)
	if err != nil {
		return nil, err
	}
	all := map[string]bench.Result{}
	for _, name := range names {
		if strings.HasSuffix(name, ".partial.json") {
			continue // of a run that was stopped
		}
		r, err := bench.ReadResult(results, name)
		if err != nil {
			return nil, err
		}
		name = strings.TrimSuffix(name, ".json")
		r.Older = older[name]
		delete(older, name)
		all[name] = r
	}
	for name := range older {
		return nil, fmt.Errorf("older.txt: no result %q", name)
	}
	return all, nil
}

// readOlder reads older.txt: for each result that measured other code than is here a line
// `NAME: what has changed since`. Lines that begin with # are for the reader.
func readOlder(results fs.FS) (map[string]string, error) {
	text, err := fs.ReadFile(results, "older.txt")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	older := map[string]string{}
	for _, line := range entries(text) {
		name, reason, ok := strings.Cut(line, ": ")
		if !ok || reason == "" || older[name] != "" {
			return nil, fmt.Errorf("older.txt: %q: write NAME: REASON, once for each", line)
		}
		older[name] = reason
	}
	return older, err
}

// Worse are the sentences about what is worse than an alternative or than before: the lines of worse.txt.
func Worse(results fs.FS) ([]string, error) {
	text, err := fs.ReadFile(results, "worse.txt")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return entries(text), err
}

// entries are the lines of a text but for empty ones and those that begin with #, which are for its reader.
func entries(text []byte) (lines []string) {
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			lines = append(lines, line)
		}
	}
	return lines
}
