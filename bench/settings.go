package bench

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Setting is one thing that `--set NAME=VALUE` says to an experiment.
type Setting struct {
	Name  string `json:"name"`
	Means string `json:"means"` // with its values
	// Flag: it is a flag of the experiment's command, too. Switch: a flag without a value,
	// which means true.
	Flag   bool `json:"flag,omitempty"`
	Switch bool `json:"-"`
	// Part: it says which part of the experiment is measured, or how often, and changes nothing
	// about a row: portions with other values are of one make (CheckPortion).
	Part bool `json:"-"`
}

// CheckSettings returns an error that lists the settings if one of args is none of
// them.
func (e Experiment) CheckSettings(args map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(args)) {
		if slices.ContainsFunc(e.Settings, func(s Setting) bool { return s.Name == name }) {
			continue
		}
		var b strings.Builder
		fmt.Fprintf(&b, "%s has no setting %q", e.Name, name)
		if len(e.Settings) == 0 {
			b.WriteString(", nor any other")
		} else {
			b.WriteString("; it has")
		}
		for _, s := range e.Settings {
			fmt.Fprintf(&b, "\n  --set %s=: %s", s.Name, s.Means)
		}
		return fmt.Errorf("%s", &b)
	}
	return nil
}

// Peer returns the absolute path of another project's program, library or folder; empty: it is
// not given. A result that does not say which code it measured is worth nothing, so the
// setting NAME-build must be given with it.
func (env Env) Peer(name string) (path string, err error) {
	if path = env.Args[name]; path == "" {
		return "", nil
	}
	if env.Args[name+"-build"] == "" {
		return "", fmt.Errorf("--set %s: say with --set %s-build= which public commit it is, and what was changed to build it", name, name)
	}
	return filepath.Abs(path)
}

// Some returns those of all that a setting names, with commas between them; fallback if it is not set.
func (env Env) Some(name string, all, fallback []string) ([]string, error) {
	text, ok := env.Args[name]
	if !ok {
		return fallback, nil
	}
	named := strings.Split(text, ",")
	for _, n := range named {
		if !slices.Contains(all, n) {
			return nil, fmt.Errorf("--set %s=%s: no %q; write some of %s", name, text, n, strings.Join(all, ","))
		}
	}
	return named, nil
}

// Number returns a setting that is a whole number from least on; fallback if it is
// not set.
func (env Env) Number(name string, least, fallback int) (int, error) {
	text, ok := env.Args[name]
	if !ok {
		return fallback, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least {
		return 0, fmt.Errorf("--set %s=%s: write a whole number from %d on", name, text, least)
	}
	return n, nil
}

// Duration returns a setting that is a duration above 0; fallback if it is not set.
func (env Env) Duration(name string, fallback time.Duration) (time.Duration, error) {
	text, ok := env.Args[name]
	if !ok {
		return fallback, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("--set %s=%s: write a duration such as 5s", name, text)
	}
	return d, nil
}
